package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"gorm.io/gorm"
)

// maxBatchReruns is how often the transaction of many that lost a deadlock is run again before it is divided.
const maxBatchReruns = 3

// ErrAlone says of a delivery that HandleBatch has left to be handled alone.
var ErrAlone = errors.New("outbox: the delivery is to be handled alone")

// Result is what HandleBatch made of one delivery: as Handle returns it, or ErrAlone.
type Result struct {
	Outcome Outcome
	Err     error
}

// HandleBatch is Handle for many deliveries at once: the guards of all that may take effect, and one effect for them, run in one
// transaction, which costs one commit, and as few statements as the effect makes of it. It returns the result of each delivery, in order.
// What the error is ErrAlone of is left for the caller to handle alone, with Handle, or HandleBatch with it alone, in a time of its own; all else
// is as Handle promises, so that the effect of a delivery is committed exactly once.
//
// The effect is given those of the deliveries whose guards let them through, in their order, and may be run several times, with some of
// them: when it returns an error, panics, rolls back or loses deadlocks, what it was given is divided, so that the delivery
// that is to blame ends up alone, and the others take effect all the same. It must do the work of each delivery or return an error. No attempt
// is counted here, unless the effect has committed the guard's transaction by itself and then returned an error: that is counted for all that it was given.
//
// Left alone is also what came back from the broker (Delivery.Redeliveries), as its effect may have ended the process, and what the guard of
// many does not let through: locked, too early, withdrawn or done, and copies of one message.
//
// When ctx ends, or the database is away, nothing more is written, and what has no result has that error. The deadline of ctx should be no
// longer than that of one delivery, as the rows of all are locked meanwhile. A single delivery is given to Handle. It is safe for concurrent use.
func (s *Store) HandleBatch(ctx context.Context, ds []Delivery, effect func(tx *gorm.DB, ds []Delivery) error) []Result {
	var mu sync.Mutex                           // an effect that was given up may have just begun
	last := make(map[int64]*aftermath, len(ds)) // of the last effect that each message was given to
	results := s.handleBatch(ctx, ds, func(tx *sql.Tx, ds []Delivery) error {
		after := &aftermath{}
		mu.Lock()
		for _, d := range ds {
			last[d.ID] = after
		}
		mu.Unlock()
		return effect(after.in(toGorm(ctx, s.db, tx)), ds)
	})
	mu.Lock()
	defer mu.Unlock()
	for i, r := range results {
		if r.Outcome == OutcomeDone {
			last[ds[i].ID].run()
		}
	}
	return results
}

func (s *Store) handleBatch(ctx context.Context, ds []Delivery, effect func(tx *sql.Tx, ds []Delivery) error) []Result {
	if len(ds) == 1 {
		outcome, err := s.handle(ctx, ds[0], func(tx *sql.Tx) error { return effect(tx, ds) })
		return []Result{{outcome, err}}
	}
	b := batch{s: s, ds: ds, effect: effect, results: make([]Result, len(ds))}
	together, alone := b.sort(ctx)
	for _, i := range append(alone, b.try(ctx, together)...) {
		b.results[i].Err = ErrAlone
	}
	return b.results
}

// batch is one call of HandleBatch. Deliveries are named by their place in it.
type batch struct {
	s       *Store
	ds      []Delivery
	effect  func(tx *sql.Tx, ds []Delivery) error
	results []Result
}

// sort tells what can be tried together.
func (b *batch) sort(ctx context.Context) (together, alone []int) {
	ledger, err := b.s.StoreID(ctx)
	seen := make(map[int64]bool, len(b.ds))
	for i, d := range b.ds {
		if err == nil && d.Store == ledger && d.Redeliveries == 0 && !seen[d.ID] && !b.s.isCrowded() {
			together = append(together, i)
		} else {
			alone = append(alone, i)
		}
		seen[d.ID] = true
	}
	return together, alone
}

// try brings deliveries to their results in one transaction, or in several smaller ones, and returns those that are to be handled alone.
func (b *batch) try(ctx context.Context, these []int) (alone []int) {
	if len(these) < 2 {
		return these
	}
	for rerun := 0; ; rerun++ {
		took, err := b.transact(ctx, these)
		rest := without(these, took, func(i int) int64 { return int64(i) })
		if err == nil {
			b.done(ctx, took)
			return rest
		}
		ended, hasEnded := errors.AsType[*endedError](err)
		if hasEnded {
			var committed bool
			if committed, err = b.s.isDone(ctx, &b.ds[took[0]]); committed {
				b.afterEnd(ctx, took, ended)
				return rest
			}
		}
		switch {
		case ctx.Err() != nil || IsOutage(err):
			for _, i := range these {
				b.results[i].Err = fmt.Errorf("handle %d messages together: %w", len(these), cmp.Or(err, ctx.Err()))
			}
			return nil
		case mysqlNumber(err) == erLockWaitTimeout: // each wait takes seconds
			return these
		case IsRetryable(err) && rerun < maxBatchReruns && sleep(ctx, upTo(time.Millisecond*time.Duration(rerun+1))) == nil:
			continue
		}
		half := len(these) / 2
		return append(b.try(ctx, these[:half]), b.try(ctx, these[half:])...)
	}
}

// afterEnd brings deliveries to their ends whose effect has committed the guard's transaction.
func (b *batch) afterEnd(ctx context.Context, took []int, ended *endedError) {
	for _, i := range took {
		outcome, err := b.s.afterEnd(ctx, b.ds[i], ended)
		if err == nil {
			b.s.cfg.Observer.delivered(b.ds[i].Topic, outcome, 0)
		}
		b.results[i] = Result{outcome, err}
	}
}

// transact runs guard and effect for those of the deliveries that may take effect now and that nobody has locked, and returns them.
func (b *batch) transact(ctx context.Context, these []int) (took []int, err error) {
	var ds []Delivery
	_, err = b.s.behind(ctx, b.ds[these[0]].Topic, func(ctx context.Context, tx *sql.Tx) (int64, error) {
		took, err = b.pass(ctx, tx, these)
		for _, i := range took {
			ds = append(ds, b.ds[i])
		}
		return int64(len(took)), err
	}, func(tx *sql.Tx) error { return b.effect(tx, ds) })
	return took, err
}

// pass is the guard of many.
func (b *batch) pass(ctx context.Context, tx *sql.Tx, these []int) (passed []int, err error) {
	ids := make([]any, len(these))
	for at, i := range these {
		ids[at] = b.ds[i].ID
	}
	type row struct {
		id         int64
		topic, key []byte
		generation int64
	}
	// index: primary, in both
	rows, err := queryAll(ctx, tx, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.id, &r.topic, &r.key, &r.generation) },
		`SELECT id, topic, message_key, generation FROM outbox_messages
		WHERE id IN (`+marks(len(ids))+`) AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)
		FOR UPDATE SKIP LOCKED`, ids...)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]row, len(rows))
	for _, r := range rows {
		found[r.id] = r
	}
	args := []any{b.s.cfg.Retention.Microseconds()}
	for _, i := range these {
		d := &b.ds[i]
		r, ok := found[d.ID]
		if !guarded || ok && string(r.topic) == d.Topic && string(r.key) == d.Key && (r.key == nil) == (d.Key == "") && r.generation == d.Generation {
			passed = append(passed, i)
			args = append(args, d.ID)
		}
	}
	if len(passed) == 0 {
		return nil, nil
	}
	_, err = execCount(ctx, tx, finishing+`
		WHERE id IN (`+marks(len(passed))+`) AND state IN ('scheduled', 'published')`, args...)
	return passed, err
}

// done notes that deliveries have taken effect.
func (b *batch) done(ctx context.Context, took []int) {
	now, err := b.s.Now(ctx)
	for _, i := range took {
		b.results[i].Outcome = OutcomeDone
		var lateness time.Duration
		if err == nil {
			lateness = now.Sub(b.ds[i].DueAt)
		}
		b.s.cfg.Observer.delivered(b.ds[i].Topic, OutcomeDone, lateness)
	}
}
