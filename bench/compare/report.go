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
	p.cost()
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
	command := "make compare"
	if p.Fast {
		command += " FAST=1"
	}
	p.say(`# Ways to close an unpaid order, measured

Written by `+"`%s`"+` (%.0f minutes), from what it counted; do not edit. Each contender is a small program in [bench/compare](../bench/compare), built as
those who recommend it describe it. All have the same shop: an order is closed by one UPDATE that asks for its status, so that whoever is told twice
closes once. What became of the orders is read from the shop's tables, by queries that know nothing of the contenders.

* **Alone**: %d orders of each contender while no other runs, unpaid for %s. Lateness is the commit of the closing minus the due time, by the database's clock.
* **Together**: %d orders of each contender, all contenders beside each other on one machine, so that one fault meets all. %s stand for 10 min,
  30 min and a day; payment delays follow the quantiles of 8,135 real orders. Lateness under faults includes the time that the fault takes.
* RabbitMQ %s, MariaDB with `+"`innodb_flush_log_at_trx_commit=1`"+`, Redis with its own default settings (snapshots, no append-only file). `, command, p.Minutes, p.Quiet, listed(quietTimeouts(p.Fast)), p.Orders, listed(usualTimeouts(p.Fast)), p.RabbitMQ)
	if p.Exchange != "plugin" {
		p.say(`The delayed exchange
  is a stand-in for the plugin, which keeps messages as the plugin does: on disk at a clean stop, and nowhere after kill -9.`)
	}
	p.say("\n")
}

func (p *page) table(head []string, row func(e entry) []string) {
	p.say("\n| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, e := range p.entries {
		p.say("| %s |\n", strings.Join(row(e), " | "))
	}
}

func (p *page) chart(name, title, says string, bar func(e entry) plot.Bar) {
	c := plot.Chart{Title: title, Says: says}
	for _, e := range p.entries {
		b := bar(e)
		b.Label = e.title
		c.Bars = append(c.Bars, b)
	}
	file := filepath.Join(plots, name+".svg")
	p.files[file] = c.SVG()
	p.say("\n![%s](%s)\n", title, file)
}

func (p *page) outcome() {
	p.say("\n## What became of the orders\n")
	p.table([]string{"", "alone: p50", "p99", "max", "together: placed", "early", "never closed", "closed twice", "paid and closed", "stock adds up"}, func(e entry) []string {
		a, t := p.Alone[e.name].Tally, p.Together[e.name][""]
		adds := "yes"
		if !p.Conserved[e.name] {
			adds = "**no**"
		}
		return []string{e.title, short(a.P50), short(a.P99), short(a.Max), number(t.Placed), number(t.Early + a.Early), number(t.Never), number(t.Twice), number(t.Both), adds}
	})
	p.chart("lateness", "lateness alone, p99", "milliseconds", func(e entry) plot.Bar {
		ms := float64(p.Alone[e.name].Tally.P99) / float64(time.Millisecond)
		return plot.Bar{Figure: short(p.Alone[e.name].Tally.P99), Value: max(0, ms)}
	})
	p.chart("never", "orders that were never closed, together", fmt.Sprintf("of %d each, one after the other fault", p.Orders), func(e entry) plot.Bar {
		n := p.Together[e.name][""].Never
		return plot.Bar{Figure: number(n), Value: float64(n), Missed: n > 0}
	})
}

// faults are two tables: what each fault has lost, and how late it has made the rest.
func (p *page) faults() {
	title := map[string]string{}
	for _, f := range phases(p.Orders, p.Fast) {
		title[f.name] = f.title
	}
	p.say("\n## Fault by fault\n\nEach cell: orders never closed / the latest of those that were.\n\n| |%s\n|---|%s\n", p.across(func(e entry) string { return e.name }), strings.Repeat("---|", len(p.entries)))
	for _, name := range p.Phases {
		p.say("| %s |%s\n", title[name], p.across(func(e entry) string {
			t := p.Together[e.name][name]
			never := number(t.Never)
			if t.Never > 0 {
				never = "**" + never + "**"
			}
			return never + " / " + short(t.Max)
		}))
	}
}

func (p *page) across(cell func(e entry) string) (row string) {
	for _, e := range p.entries {
		row += " " + cell(e) + " |"
	}
	return row
}

func (p *page) cost() {
	p.say("\n## What it takes\n\nStatements and rows are as the database counts them for the contender's user; of an order they are from placing to its end. Memory is what %d waiting orders took, times %.0f.\n",
		p.Waiting, 100_000/float64(p.Waiting))
	p.table([]string{"", "statements/s idle", "statements an order", "rows read an order", "broker, MB per 100,000 waiting", "Redis", "processes", "lines of code", "beside MySQL"}, func(e entry) []string {
		a := p.Alone[e.name]
		mb := func(bytes float64) string { return fmt.Sprintf("%.1f", bytes/1e6) }
		return []string{e.title, fmt.Sprintf("%.1f", a.IdlePerS), fmt.Sprintf("%.1f", a.PerOrder), fmt.Sprintf("%.0f", a.RowsPerOrder), mb(a.Broker), mb(a.Redis), mb(a.Process), number(p.Lines[e.name]), e.needs}
	})
}

func (p *page) hands() {
	p.say("\n## What an operator can do\n")
	p.table([]string{"", "what waits can be seen", "it can be withdrawn"}, func(e entry) []string { return []string{e.title, e.sees, e.undoes} })
}

// guide follows from the figures, and from nothing else.
func (p *page) guide() {
	p.say("\n## How to choose\n\nFrom the figures above:\n\n")
	names := func(is func(e entry) bool) string {
		var all []string
		for _, e := range p.entries {
			if is(e) {
				all = append(all, e.title)
			}
		}
		if len(all) == 0 {
			return "none"
		}
		return strings.Join(all, "; ")
	}
	total := func(e entry) tally { return p.Together[e.name][""] }
	p.say("* **No order may stay open**: %s. The others lost orders: %s.\n", names(func(e entry) bool { return total(e).Never == 0 }), names(func(e entry) bool { return total(e).Never > 0 }))
	p.say("* **Never before its time**: %s were early.\n", names(func(e entry) bool { return total(e).Early+p.Alone[e.name].Tally.Early > 0 }))
	for _, limit := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
		p.say("* **99 of 100 within %v**, nothing lost: %s.\n", limit, names(func(e entry) bool { return total(e).Never == 0 && p.Alone[e.name].Tally.P99 <= limit }))
	}
	p.say("* **Nothing but MySQL**, nothing lost: %s.\n", names(func(e entry) bool { return total(e).Never == 0 && strings.HasPrefix(e.needs, "nothing") }))
	p.say("* **A broker without the delayed exchange** (RabbitMQ 4.3, managed ones), nothing lost: %s.\n", names(func(e entry) bool { return total(e).Never == 0 && e.needs == "RabbitMQ" }))
	least := slices.MinFunc(p.entries, func(a, b entry) int { return p.Lines[a.name] - p.Lines[b.name] })
	p.say("* **The least code**: %s (%d lines).", least.title, p.Lines[least.name])
	if total(least).Never == 0 {
		p.say(" It lost nothing either: with a few thousand orders a day, and when %s of lateness is fine, that is enough.", short(p.Alone[least.name].Tally.P99))
	}
	p.say("\n")
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
