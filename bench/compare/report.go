package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/duebox/duebox/internal/plot"
)

const plots = "comparison"

// report makes comparison.md and its plots of what was measured: names below the documentation's folder, and their texts.
func report(r results) (map[string][]byte, error) {
	var shown []entry
	for _, e := range entries() {
		if _, ok := r.Together[e.name]; ok {
			shown = append(shown, e)
		}
	}
	if len(shown) == 0 {
		return nil, fmt.Errorf("there is no result")
	}
	p := page{results: r, entries: shown, files: map[string][]byte{}}
	p.head()
	p.outcome()
	p.faults()
	if p.Quiet > 0 {
		p.cost()
	}
	p.hands()
	p.guide()
	p.files["comparison.md"] = []byte(p.md.String())
	return p.files, nil
}

// page is the report while it is written.
type page struct {
	results

	entries []entry
	md      strings.Builder
	files   map[string][]byte
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(&p.md, format, args...) }

func (p *page) head() {
	var placed, due int
	for _, t := range p.Together {
		placed, due = max(placed, t[""].Placed), max(due, toClose(t[""]))
	}
	p.say(`# Ways to close an unpaid order, measured

Written by `+"`%s`"+` in %.0f minutes,
from what it counted, which is in comparison.json beside this page; do not edit. Measured on %s:
%s.

Each contender is a small program in bench/compare, built as those who recommend it describe it. All have the same shop: an order is closed by one UPDATE that
asks for its status, so that whoever is told twice closes once. How often a contender asked to close what it had closed is counted all the same ("asked
again"): a shop that looks first and writes then would have given the stock back twice. So is how often it asked to close what was paid: the time wheel and
both ways with Redis could take an order out when it is paid, and those who recommend them do not. What became of the orders is read from the shop's tables, by
queries that know nothing of the contenders.

* **Alone**: %s orders of each contender while no other runs, which may be unpaid for %s.
* **Together**: %s orders of each contender, all contenders beside each other on one machine, so that one fault meets all. %s
  stand for 10 min, 30 min and a day; payment delays follow the quantiles of 8,135 orders of a real marketplace, so that of these about %s remain to be closed.
  Where nothing fails, lateness of seconds is what so many programs on so few cores cost each other.
* **Lateness** is the time of the statement that closes an order minus the due time, by the database's clock. Its commit follows: at once for those that
  close one order in a transaction, after the rest of its lot for those that close more (see "closes").
* MariaDB has `+"`innodb_flush_log_at_trx_commit=1`"+`. Redis has its own default settings, which are snapshots and no append-only file, and key expiry events.
* Not tried: a database whose data is wiped has lost the orders themselves, and workers keep no data that could be wiped. An append-only file of Redis.
`, p.command(), p.Minutes, p.Machine, strings.Join(p.Versions, ", "), number(p.Quiet), listed(quietTimeouts(p.Fast)), number(placed), listed(usualTimeouts(p.Fast)), number(due))
	if len(p.Failed) > 0 {
		p.say("* **Not all was done**, so that what follows cannot be compared: %s.\n", strings.Join(p.Failed, "; "))
	}
	if p.Exchange != "plugin" {
		p.say(`* The delayed exchange was a stand-in for the plugin, which keeps messages as the plugin does: on disk at a clean stop and a second or two after they came,
  so that kill -9 loses the youngest. Where the upstream plugin is installed, the same command runs on it. By hand, the upstream plugin 3.10.2 on RabbitMQ
  3.10.8 was measured so: a clean restart kept 100,000 of 100,000; kill -9 right after the last of 5,000 confirms lost 436, 23 and 1,413 of them in three
  runs, and none in a fourth, five seconds later; 20,000 messages of one second were late by 257 ms (p50) and 645 ms (p99); a waiting message of 200
  bytes takes about 1.4 kB of the broker's memory.
`)
	}
}

// command is what has measured this.
func (p *page) command() string {
	var arguments []string
	for i := 0; i < len(p.Arguments); i++ {
		switch p.Arguments[i] {
		case "-docs", "--docs":
			i++
		case "-fast":
		default:
			arguments = append(arguments, p.Arguments[i])
		}
	}
	command := "make compare"
	if p.Fast {
		command += " FAST=1"
	}
	if len(arguments) > 0 {
		command += " ARGS='" + strings.Join(arguments, " ") + "'"
	}
	return command
}

// toClose is how many orders were not paid.
func toClose(t tally) int { return t.Placed - t.Paid }

// title is a contender's, with what it did not run on.
func (p *page) title(e entry) string {
	if strings.Contains(e.needs, "plugin") && p.Exchange != "plugin" {
		return e.title + " (stand-in)"
	}
	return e.title
}

func (p *page) table(head []string, row func(e entry) []string) {
	p.say("\n| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, e := range p.entries {
		p.say("| %s |\n", strings.Join(row(e), " | "))
	}
}

func (p *page) chart(name, title, says string, logarithmic bool, bar func(e entry) plot.Bar) {
	c := plot.Chart{Title: title, Says: says, Logarithmic: logarithmic}
	for _, e := range p.entries {
		b := bar(e)
		b.Label = p.title(e)
		c.Bars = append(c.Bars, b)
	}
	file := filepath.Join(plots, name+".svg")
	p.files[file] = c.SVG()
	p.say("\n![%s](%s)\n", title, file)
}

func (p *page) outcome() {
	p.say("\n## What became of the orders\n")
	head := []string{"", "name", "alone: p50", "p99", "max", "early", "together: to close", "early", "never closed", "closed twice", "asked again", "asked for paid ones", "paid and closed", "stock adds up"}
	from, to := 2, 6 // are of the runs alone
	if p.Quiet > 0 {
		from = to
	}
	p.table(slices.Delete(head, from, to), func(e entry) []string {
		a, t := p.Alone[e.name].Tally, p.Together[e.name][""]
		adds := "yes"
		if !p.Conserved[e.name] {
			adds = "**no**"
		}
		early := func(t tally) string {
			if t.Early == 0 {
				return "0"
			}
			return fmt.Sprintf("**%s**, up to %s", number(t.Early), short(-t.First))
		}
		return slices.Delete([]string{
			p.title(e), "`" + e.name + "`", short(a.P50), short(a.P99), short(a.Max), early(a), number(toClose(t)), early(t),
			strong(t.Never), strong(t.Twice), number(t.Again), number(t.Vain), strong(t.Both), adds,
		}, from, to)
	})
	if p.Quiet > 0 {
		p.chart("lateness", "lateness alone, p99", "logarithmic, from 1 ms", true, func(e entry) plot.Bar {
			ms := float64(p.Alone[e.name].Tally.P99) / float64(time.Millisecond)
			return plot.Bar{Figure: short(p.Alone[e.name].Tally.P99), Value: max(0, ms)}
		})
	}
	p.chart("never", "orders that were never closed, together", "under one fault after the other", false, func(e entry) plot.Bar {
		t := p.Together[e.name][""]
		return plot.Bar{Figure: fmt.Sprintf("%s of %s", number(t.Never), number(toClose(t))), Value: float64(t.Never), Missed: t.Never > 0}
	})
}

// first is the lateness of the order that was closed soonest: less than 0 where it was too soon.
func (p *page) first(e entry) time.Duration {
	return min(p.Together[e.name][""].First, p.Alone[e.name].Tally.First)
}

// most is the lateness of the order that was closed last.
func most(t tally) string {
	if t.Closed == 0 {
		return "–"
	}
	return short(t.Max)
}

// strong is a count that should be 0.
func strong(n int) string {
	if n > 0 {
		return "**" + number(n) + "**"
	}
	return number(n)
}

// groups are the tables of faults: what they have in common, and the beginning of their names.
func groups() [][2]string {
	return [][2]string{{"No server fails", ""}, {"Broker", "broker-"}, {"Redis", "redis-"}, {"Database", "database-"}, {"Worker", "worker-"}}
}

// faults are a table for each thing that can fail: what each fault has lost, and how late it has made the rest.
func (p *page) faults() {
	p.say(`
## Fault by fault

Each cell: orders never closed, of those that should have been / the latest that was; how many of them were closed only when their phase was over, %s
after the last due time; and how often a contender asked to close what it had closed. An order counts in the phase in which it was placed, also if it
is closed, or asked for again, in a later one: an old snapshot that Redis comes back with after kill -9 has orders of the phase before. Whoever publishes
after the commit may lose, at a clean restart too, what is placed while the broker or Redis is away. What is later than %s was still open when its phase
was over, however early it was due: something in a later one has woken it, and the guide below counts it as open.
`, short(settle(p.Fast)), short(openFor(p.Fast)))
	all := phases(p.Orders, p.Fast, p.Phases)
	for _, group := range groups() {
		var head, names []string
		for _, f := range all {
			if group[1] == "" && strings.Contains(f.name, "-") || !strings.HasPrefix(f.name, group[1]) || f.name == burst {
				continue
			}
			head, names = append(head, fmt.Sprintf("%s (`%s`, %s orders)", f.title, f.name, number(f.orders))), append(names, f.name)
		}
		if len(names) == 0 {
			continue
		}
		p.say("\n### %s\n", group[0])
		p.table(append([]string{""}, head...), func(e entry) []string {
			row := []string{p.title(e)}
			for _, name := range names {
				t := p.Together[e.name][name]
				cell := strong(t.Never)
				if t.Never > 0 {
					cell += " of " + number(toClose(t))
				}
				cell += " / " + most(t)
				if t.Pending > 0 {
					cell += fmt.Sprintf(", not yet due %d", t.Pending)
				}
				if t.After > 0 {
					cell += fmt.Sprintf(", after it %d", t.After)
				}
				if t.Again > 0 {
					cell += fmt.Sprintf(", again %d", t.Again)
				}
				row = append(row, cell)
			}
			return row
		})
	}
	p.bursts(all)
}

// bursts is what became of orders that were due at once.
func (p *page) bursts(all []phase) {
	i := slices.IndexFunc(all, func(f phase) bool { return f.name == burst })
	if i < 0 {
		return
	}
	p.say("\n### %s orders due in one second (`%s`)\n\nThe contenders come one after the other, and nobody places orders of a burst while another's is closed.\n", number(all[i].orders), burst)
	p.table([]string{"", "closes", "due within", "late: p50", "p99", "max", "closed a second"}, func(e entry) []string {
		t := p.Together[e.name][burst]
		return []string{p.title(e), e.closes, short(t.Spread), short(t.P50), short(t.P99), short(t.Max), number(int(p.rate(e)))}
	})
}

// rate is how many orders a contender closed in a second while more than that were due.
func (p *page) rate(e entry) float64 {
	t := p.Together[e.name][burst]
	return float64(t.Closed) / max(t.Drained.Seconds(), 1)
}

// openFor is how long after its due time the first order of a phase has, until the phase is over.
func openFor(fast bool) time.Duration {
	timeouts := slices.Sorted(maps.Values(usualTimeouts(fast)))
	return window(fast) + timeouts[len(timeouts)-1] - timeouts[0] + settle(fast)
}

// stuck are the faults, of a contender, after which orders were open until a later fault.
func (p *page) stuck(e entry) (names []string) {
	for _, name := range p.Phases {
		if name != burst && p.Together[e.name][name].Max > openFor(p.Fast) {
			names = append(names, name)
		}
	}
	return names
}

// lossy are what a contender loses orders with: the groups of faults, and how many.
func (p *page) lossy(e entry) string {
	var all []string
	for _, group := range groups() {
		lost := 0
		for _, name := range p.Phases {
			if in := strings.HasPrefix(name, group[1]); in && (group[1] != "" || !strings.Contains(name, "-")) {
				lost += p.Together[e.name][name].Never
			}
		}
		if lost > 0 {
			all = append(all, fmt.Sprintf("%s: %s", group[0], number(lost)))
		}
	}
	if names := p.stuck(e); len(names) > 0 {
		all = append(all, "open for long after "+strings.Join(names, ", "))
	}
	return strings.Join(all, ", ")
}

func (p *page) cost() {
	p.say(`
## What it takes

Statements and rows are as the database counts them for the contender's user. Idle: nothing waits, and %s orders of the past are in the table. Busy: the mean
of the run alone, in which %.0f orders a second are placed for %s, and closed until %s later. Of an order: from placing to its end; statements without those
that are idle, rows with them. What waits is %s orders that are due in an hour, times %.0f: live on heaps after a garbage collection, and in the database's files,
orders included; –: not used. duebox publishes what is due within its horizon of ten minutes, and with tiers what its longest tier takes, so that `+"`plugin`"+` and
`+"`hold`"+` have nothing in the broker yet. Lines of code are the contender's own, with the connection that heals (rabbit.go) where it needs one, without libraries.
`, number(p.Quiet), float64(p.Quiet)/quietWindow(p.Fast).Seconds(), short(quietWindow(p.Fast)), short(slices.Max(slices.Collect(maps.Values(quietTimeouts(p.Fast))))), number(p.Waiting), 100_000/float64(p.Waiting))
	p.table([]string{
		"", "statements/s idle", "rows read/s idle", "statements/s busy", "statements an order", "rows read an order",
		"broker, MB per 100,000 waiting", "Redis", "processes", "database", "lines of code", "needs beside MySQL",
	}, func(e entry) []string {
		a := p.Alone[e.name]
		mb := func(bytes float64, uses bool) string {
			if !uses {
				return "–"
			}
			return fmt.Sprintf("%.1f", max(0, bytes/1e6))
		}
		return []string{
			p.title(e), fmt.Sprintf("%.1f", a.IdlePerS), number(int(a.IdleRowsPerS)), number(int(a.BusyPerS)), fmt.Sprintf("%.1f", a.PerOrder), fmt.Sprintf("%.0f", a.RowsPerOrder),
			mb(a.Broker, strings.HasPrefix(e.needs, "RabbitMQ")), mb(a.Redis, strings.HasPrefix(e.needs, "Redis")), mb(a.Process, true), mb(a.Database, true), number(p.Lines[e.name]), e.needs,
		}
	})
}

func (p *page) hands() {
	p.say("\n## What an operator can do\n")
	p.table([]string{"", "what waits can be seen", "it can be withdrawn"}, func(e entry) []string { return []string{p.title(e), e.sees, e.undoes} })
}

// listed are timeouts, from the shortest.
func listed(timeouts map[string]time.Duration) string {
	var all []string
	for _, d := range slices.Sorted(maps.Values(timeouts)) {
		all = append(all, d.String())
	}
	return strings.Join(all, ", ")
}

// short is a duration to three digits.
func short(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	case abs < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// number has its thousands apart.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
