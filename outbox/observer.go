package outbox

import "time"

// Observer is told what the ledger, the relay and the reconciler do: metrics and tracing hang on it. Any function may be
// nil. They are called from many goroutines, outside transactions, and must return at once.
type Observer struct {
	// Published is called for each publication: how long its confirm took, and its error (nil when confirmed).
	Published func(topic string, confirm time.Duration, err error)
	// Delivered is called for each delivery that Handle has finished with, or Finish has marked done; lateness is database time just
	// after the commit (before it, for Finish) minus due time, for OutcomeDone only, else 0.
	Delivered func(topic string, outcome Outcome, lateness time.Duration)
	// Settled is called after a settle: rows marked published, and rows whose revision had moved on.
	Settled func(published, moved int)
	// LeaseLost is called when n shards were lost to another relay or to time.
	LeaseLost func(n int)
	// Repaired is called when n published rows were scheduled again: their broker epoch has ended ("epoch"), they were published
	// ahead of their time by a strategy that is used no more ("ahead"), they had no
	// effect within the grace period ("overdue"), or no queue was bound for them ("unrouted").
	Repaired func(reason string, n int)
	// Died is called when n messages have become dead: their effects returned too many errors ("attempts"), they cannot be
	// published ("unpublishable"), or were repaired too often ("overdue", "unrouted").
	Died func(reason string, n int)
	// Attempted is called when it has been written down that a delivery came to no effect: its effect returned an error, or counts as
	// if it had, or no queue was bound for its topic. The outcome is OutcomeRetry, or OutcomeDead when that was the last time; why is
	// what Record.LastError says then, and d.Attempt counts the errors with this one.
	Attempted func(d Delivery, outcome Outcome, why string)
	// Overran is called with 1 when an effect was given up because it did not return after the end of its context, and
	// with -1 when such an effect has returned at last. Their sum is how many goroutines they hold.
	Overran func(topic string, n int)
}

func (o *Observer) published(topic string, confirm time.Duration, err error) {
	if o.Published != nil {
		o.Published(topic, confirm, err)
	}
}

func (o *Observer) delivered(topic string, outcome Outcome, lateness time.Duration) {
	if o.Delivered != nil {
		o.Delivered(topic, outcome, lateness)
	}
}

func (o *Observer) attempted(d Delivery, outcome Outcome, why string) {
	if o.Attempted != nil {
		o.Attempted(d, outcome, why)
	}
}

func (o *Observer) settled(published, moved int) {
	if o.Settled != nil {
		o.Settled(published, moved)
	}
}

func (o *Observer) leaseLost(n int) {
	if o.LeaseLost != nil && n > 0 {
		o.LeaseLost(n)
	}
}

func (o *Observer) died(reason string, n int) {
	if o.Died != nil && n > 0 {
		o.Died(reason, n)
	}
}

func (o *Observer) repaired(reason string, n int) {
	if o.Repaired != nil && n > 0 {
		o.Repaired(reason, n)
	}
}

func (o *Observer) overran(topic string, n int) {
	if o.Overran != nil {
		o.Overran(topic, n)
	}
}
