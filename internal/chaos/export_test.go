package chaos

import "time"

// What the package's tests reach besides Run and Check.

func Draw(seed uint64, total time.Duration, exchange string) []Step {
	return draw(seed, total, kinds(exchange))
}

func Kinds(exchange string) (names []Kind) {
	for _, k := range kinds(exchange) {
		names = append(names, k.name)
	}
	return names
}

// Span is a step of the schedule as it really was.
type Span struct {
	Begin, End time.Time
	Silent     bool
}

func Classify(created, published, due time.Time, spans ...Span) string {
	var c calendar
	for _, s := range spans {
		c = append(c, span{s.Begin, s.End, s.Silent})
	}
	return [...]string{quiet: "quiet", faulty: "faulty", unheard: "unheard", handed: "handed"}[c.classify(created, published, due)]
}

// Each lets a test change what clients were told.
func (l *Ledger) Each(change func(*Order)) {
	for _, o := range l.orders {
		change(o)
	}
}
