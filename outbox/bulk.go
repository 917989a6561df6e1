package outbox

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Bulk is a command for all messages that a filter picks.
type Bulk struct {
	Command
	// Filter must pick by something: a bulk over everything is a slip.
	Filter Filter
	// After is where another bulk of the same filter has stopped (BulkResult.Next); empty: from the beginning. It goes with Began.
	After string
	// Began is when the first of several bulks over the same messages began, such as the one that has counted them, or that has stopped
	// (BulkResult.Began). Zero: this is the first one. Messages that came later are left alone, and so are those on which an operator
	// has acted since: it is done to each once, wherever it has moved to.
	Began time.Time
	// Limit is the most messages that are changed, or with DryRun would be. 1 to MaxBulk.
	Limit int
	// DryRun changes nothing and tells what would be matched.
	DryRun bool
}

// MaxBulk is the most messages that one bulk changes.
const MaxBulk = 10_000

// BulkResult is what came of a bulk.
type BulkResult struct {
	Matched   int // in a state for the command
	Changed   int // by the command; what has moved on since it was read, or is locked by somebody, is not
	Protected int // of those matched, what the application does not want changed
	// Why is what the application said of the first of those.
	Why string
	// Next is where the next bulk goes on, and Began what it is given with it; Next is empty when everything was seen.
	Next  string
	Began time.Time
}

const (
	// How many messages one transaction of a bulk changes.
	bulkRows = 200
	// After how long a bulk stops and says where to go on. A request that brings it about has its own deadline.
	bulkTime = 8 * time.Second
)

// Bulk does a command to the messages that a filter picks and that are in a state for it, each at most once. It works in transactions of 200
// rows: each row is changed if it is still as it was read (by its revision) and nobody holds it locked, together with its audit
// entry. When ctx ends, or after 8 s, it stops between two transactions: what is done is done, and the result says where to go on, also beside
// an error.
//
// It returns an error that wraps ErrInvalidMessage for a bulk that breaks a rule; one without a filter does.
func (o *Operator) Bulk(ctx context.Context, by Actor, b Bulk) (res BulkResult, err error) {
	if err := errors.Join(by.check(), b.check()); err != nil {
		return res, err
	}
	started := time.Now()
	res.Next, res.Began = b.After, b.Began
	if res.Began.IsZero() {
		if res.Began, err = o.store.readClock(ctx); err != nil {
			return res, err
		}
	}
	seen := map[int64]bool{} // what is published meanwhile moves on to a part of the list that comes later
	b.Filter.among, b.Filter.untouched = b.Action.states(), res.Began
	for {
		rows, next, err := o.list(ctx, &b.Filter, res.Next, min(bulkRows, b.Limit-(res.Matched-res.Protected)))
		if err != nil {
			return res, err
		}
		if err := o.bulkPage(ctx, by, b, rows, seen, &res); err != nil {
			return res, err
		}
		res.Next = next
		if res.Next == "" || res.Matched-res.Protected == b.Limit || time.Since(started) > bulkTime {
			return res, nil
		}
	}
}

func (b *Bulk) check() error {
	if err := errors.Join(b.Command.check(), b.Filter.check()); err != nil {
		return err
	}
	switch {
	case b.Filter.IsZero():
		return invalid("filter", "a bulk needs a filter")
	case b.After != "" && b.Began.IsZero():
		return invalid("began_at", "is required with after: both are in the answer that says where to go on")
	case !b.Began.IsZero() && checkDue(b.Began) != nil:
		return invalid("began_at", "it is not in the years 1970 to 9998")
	case b.Limit < 1 || b.Limit > MaxBulk:
		return invalid("limit", "limit %d is not in 1 to %d", b.Limit, MaxBulk)
	case b.Filter.State != "" && !slices.Contains(b.Action.states(), b.Filter.State):
		return invalid("state", "%s is for messages that are %s, not %s", b.Action, oneOf(b.Action.states()), b.Filter.State)
	}
	return nil
}

// bulkPage does a bulk's command to rows that it has not met before.
func (o *Operator) bulkPage(ctx context.Context, by Actor, b Bulk, rows []version, seen map[int64]bool, res *BulkResult) error {
	var allowed []version
	for _, r := range rows {
		if seen[r.ID] {
			continue
		}
		seen[r.ID] = true
		res.Matched++
		err := o.cfg.Protect(ctx, b.Command, r.Record)
		protected, is := errors.AsType[*ProtectedError](err)
		switch {
		case is && res.Protected == 0:
			res.Why = protected.Err.Error()
			fallthrough
		case is:
			res.Protected++
		case err != nil:
			return err
		default:
			allowed = append(allowed, r)
		}
	}
	if b.DryRun {
		return nil
	}
	changed, err := o.change(ctx, by, b.Command, allowed, " SKIP LOCKED")
	res.Changed += len(changed)
	return err
}
