package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
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
	Changed   int // by the command; what is locked by somebody, or moves on each time that it is read, is not
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
// entry. What is locked, or has moved on, is tried once more at the end, wherever it is then. When ctx ends, or after 8 s, it stops between two transactions: what is done is done, and the result says where to go on, also beside
// an error.
//
// It returns an error that wraps ErrInvalidMessage for a bulk that breaks a rule; one without a filter does.
func (o *Operator) Bulk(ctx context.Context, by Actor, b Bulk) (res BulkResult, err error) {
	if err := errors.Join(by.check(), b.check()); err != nil {
		return res, err
	}
	started := time.Now()
	now, err := o.store.readClock(ctx)
	if err != nil {
		return res, err
	}
	switch res.Began = b.Began; {
	case b.Began.IsZero():
		res.Began = now
	case b.Began.After(now):
		return res, invalid("began_at", "it is later than the database's clock, which has been set back if it comes from an answer")
	}
	at, err := parseRound(b.After, &b)
	if err != nil {
		return res, err
	}
	met := meetings{}
	b.Filter.among, b.Filter.untouched = b.Action.states(), res.Began
	for {
		rows, next, err := o.list(ctx, &b.Filter, at.after, min(bulkRows, b.Limit-b.done(&res)))
		if err != nil {
			return res, err
		}
		if err := o.bulkPage(ctx, by, b, rows, met, &res); err != nil {
			return res, err
		}
		at.after = next
		// What was locked, or has moved back in the list, is met in another round; in none it is what has been acted on.
		if next == "" && at.round < bulkRounds && !b.DryRun && (b.After != "" || res.Changed+res.Protected < res.Matched) {
			at.round++
		} else if next == "" {
			res.Next = ""
			return res, nil
		}
		res.Next = at.text(&b)
		if b.done(&res) == b.Limit || time.Since(started) > bulkTime {
			return res, nil
		}
	}
}

// done is what counts for the limit.
func (b *Bulk) done(res *BulkResult) int {
	if b.DryRun {
		return res.Matched - res.Protected
	}
	return res.Changed
}

// round is where a bulk stands: how often it has been through the list before, and where it goes on.
type round struct {
	round int
	after string
}

// bulkRounds is how often a bulk begins anew at the end of the list.
const bulkRounds = 1

// text is the round as it goes through a client, which cannot use it for another bulk.
func (r round) text(b *Bulk) string { return fmt.Sprintf("%d.%08x.%s", r.round, b.sum(), r.after) }

func parseRound(text string, b *Bulk) (r round, err error) {
	if text == "" {
		return r, nil
	}
	number, rest, _ := strings.Cut(text, ".")
	sum, after, ok := strings.Cut(rest, ".")
	r.round, err = strconv.Atoi(number)
	if r.after = after; err != nil || !ok || r.round < 0 || r.round > bulkRounds || sum != fmt.Sprintf("%08x", b.sum()) {
		return r, invalid("after", "%q is not where a bulk of this action and filter goes on", clip(text))
	}
	return r, nil
}

// sum tells bulks apart.
func (b *Bulk) sum() uint32 {
	f := b.Filter
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%q", []string{
		string(b.Action), f.Topic, f.Key, f.KeyPrefix, string(f.State), f.DueFrom.UTC().String(), f.DueBefore.UTC().String(), f.Error,
	}))
}

// meetings are what a bulk has made of the messages that it has met: true for those that it is done with.
type meetings map[int64]bool

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

// bulkPage does a bulk's command to rows. What it met before and could not change is tried again, and counts once.
func (o *Operator) bulkPage(ctx context.Context, by Actor, b Bulk, rows []version, met meetings, res *BulkResult) error {
	var allowed []version
	for _, r := range rows {
		over, before := met[r.ID]
		if over {
			continue
		}
		if !before {
			res.Matched++
		}
		met[r.ID] = b.DryRun
		err := o.cfg.Protect(ctx, b.Command, r.Record)
		protected, is := errors.AsType[*ProtectedError](err)
		switch {
		case is:
			met[r.ID] = true
			res.Protected++
			res.Why = cmp.Or(res.Why, protected.Err.Error())
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
	for _, r := range changed {
		met[r.ID] = true
	}
	return err
}
