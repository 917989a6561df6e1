package main

import (
	"math"
	"slices"
	"strings"
	"time"
)

// guide says what follows from the figures.
func (p *page) guide() {
	p.say("\n## How to choose\n\nFrom the figures above:\n\n")
	total := func(e entry) tally { return p.Together[e.name][""] }
	keeps := func(e entry) bool { return total(e).Never == 0 && len(p.stuck(e)) == 0 }
	p.say("* **No order may stay open**: %s.\n", p.names(keeps, nil))
	p.say("* **Some may**, because somebody looks for them: under one fault after the other, these stayed open, by what failed in their phase: %s. Whom a fault cannot meet, it costs nothing.\n",
		p.names(func(e entry) bool { return !keeps(e) }, p.lossy))
	p.say("* **The latest** that those who lost nothing closed an order, under any fault: %s.\n", p.names(keeps, p.latest))
	p.say("* **Before its time**: %s.\n", p.names(func(e entry) bool { return p.first(e) < 0 }, func(e entry) string { return "up to " + short(-p.first(e)) + " early" }))
	p.say("* **Asked again** for what it had closed: %s. A 0 above is a count and no promise: brokers deliver again what was not acknowledged, and so does Watermill.\n",
		p.names(func(e entry) bool { return total(e).Again > 0 }, func(e entry) string { return number(total(e).Again) }))
	for _, limit := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
		if p.Quiet == 0 {
			break
		}
		p.say("* **99 of 100 within %v**, nothing lost: %s.\n", limit, p.names(func(e entry) bool { return keeps(e) && p.Alone[e.name].Tally.P99 <= limit }, func(e entry) string { return short(p.Alone[e.name].Tally.P99) }))
	}
	p.volume(keeps)
	p.say("* **Nothing but MySQL**, nothing lost: %s.\n", p.names(func(e entry) bool { return keeps(e) && strings.HasPrefix(e.needs, "nothing") }, nil))
	p.say("* **A broker without the delayed exchange** (RabbitMQ 4.3, managed ones), nothing lost: %s.\n", p.names(func(e entry) bool { return keeps(e) && e.needs == "RabbitMQ" }, nil))
	var good []entry
	for _, e := range p.entries {
		if keeps(e) && p.first(e) >= 0 && !p.grows(e) {
			good = append(good, e)
		}
	}
	if len(good) > 0 && p.Quiet > 0 {
		least := slices.MinFunc(good, func(a, b entry) int { return p.Lines[a.name] - p.Lines[b.name] })
		p.say("* **The least code** of those that lose nothing, are never early and do not read the whole table: %s, %d lines. Where %s of lateness is fine and nothing but orders has a due time, nothing more is needed.\n",
			p.title(least), p.Lines[least.name], short(p.Alone[least.name].Tally.P99))
	}
}

// latest is how late a contender was at worst outside of the burst, and after which fault.
func (p *page) latest(e entry) string {
	worst := slices.MaxFunc(p.Phases, func(a, b string) int {
		late := func(name string) time.Duration {
			if name == burst {
				return 0
			}
			return p.Together[e.name][name].Max
		}
		return int(late(a) - late(b))
	})
	return short(p.Together[e.name][worst].Max) + ", " + worst
}

// peak is how many times the mean of a day its busiest second brings.
const peak = 10

// volume says who closes so many orders a day.
func (p *page) volume(keeps func(e entry) bool) {
	if !slices.Contains(p.Phases, burst) || p.Quiet == 0 {
		return
	}
	many := 0 // of the burst, beyond which no rate can be seen
	for _, e := range p.entries {
		many = max(many, toClose(p.Together[e.name][burst]))
	}
	for _, day := range []int{100_000, 1_000_000, 10_000_000} {
		second := peak * float64(day) / (24 * time.Hour).Seconds()
		if second > float64(many) {
			break
		}
		p.say("* **%s orders a day**, %s a second when the busiest has %d times the mean, nothing lost, on this machine: %s.\n", number(day), number(int(math.Round(second))), peak, p.names(func(e entry) bool {
			return keeps(e) && p.rate(e) >= second && !p.grows(e)
		}, nil))
	}
	p.say("* **Reads the whole table over and over**, and is left out of these, because each order ever taken makes it slower: %s.\n",
		p.names(p.grows, func(e entry) string {
			return number(int(p.Alone[e.name].IdleRowsPerS)) + " rows a second beside " + number(p.Quiet) + " orders"
		}))
}

// grows says that an idle contender reads as many rows as there are orders, or more, every two seconds.
func (p *page) grows(e entry) bool { return p.Alone[e.name].IdleRowsPerS > float64(p.Quiet)/2 }

// names are the titles of those who are so, each with what is to be said of it.
func (p *page) names(is func(e entry) bool, says func(e entry) string) string {
	var all []string
	for _, e := range p.entries {
		if !is(e) {
			continue
		}
		name := p.title(e)
		if says != nil {
			name += " (" + says(e) + ")"
		}
		all = append(all, name)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ")
}
