package outbox

import (
	"context"
	"database/sql"
	"time"
)

// Direct has the calls of a Store in transactions of their own, run again while they lose deadlocks: for callers that have no
// business change to make in the same transaction, such as a gateway. It is safe for concurrent use.
//
// An error of a database that went away says nothing about whether the change was made. Enqueue with OnConflictReplace, Reschedule
// and Cancel can be asked for again.
type Direct struct{ s *Store }

// Direct returns the ledger's calls for callers without a transaction.
func (s *Store) Direct() Direct { return Direct{s} }

// Enqueue is Store.Enqueue, and returns the message as it is then.
func (q Direct) Enqueue(ctx context.Context, m *Message) (r Record, err error) {
	err = q.do(ctx, func(tx *sql.Tx) error {
		if err := q.s.enqueue(ctx, tx, m); err != nil {
			return err
		}
		r, err = lookup(ctx, tx, "id = ?", m.ID)
		return err
	})
	return r, err
}

// Cancel is Store.Cancel.
func (q Direct) Cancel(ctx context.Context, topic, key string) error {
	return q.do(ctx, func(tx *sql.Tx) error { return q.s.cancel(ctx, tx, topic, key) })
}

// Reschedule is Store.Reschedule, and returns the message as it is then. With a zero due time the message is due after delay, by the
// database's clock.
func (q Direct) Reschedule(ctx context.Context, topic, key string, due time.Time, delay time.Duration) (r Record, err error) {
	if !due.IsZero() {
		if err := checkDue(due); err != nil {
			return r, err
		}
	}
	err = q.do(ctx, func(tx *sql.Tx) error {
		if err := q.s.move(ctx, tx, topic, key, when{due, delay}); err != nil {
			return err
		}
		r, err = lookup(ctx, tx, "topic = ? AND live_key = ?", []byte(topic), []byte(key))
		return err
	})
	return r, err
}

// Lookup is Store.Lookup.
func (q Direct) Lookup(ctx context.Context, topic, key string) (Record, error) {
	return q.s.Lookup(ctx, topic, key)
}

// LookupID is Store.LookupID.
func (q Direct) LookupID(ctx context.Context, id int64) (Record, error) { return q.s.LookupID(ctx, id) }

// MayRun is Store.MayRun.
func (q Direct) MayRun(ctx context.Context, d Delivery) error { return q.s.MayRun(ctx, d) }

// Finish is Store.Finish.
func (q Direct) Finish(ctx context.Context, d Delivery) error { return q.s.Finish(ctx, d) }

// do runs fn in a transaction, from the start again while it loses deadlocks.
func (q Direct) do(ctx context.Context, fn func(tx *sql.Tx) error) error {
	for rerun := 0; ; rerun++ {
		err := q.s.inTx(ctx, fn)
		if !IsRetryable(err) || rerun == maxReruns || sleep(ctx, upTo(time.Millisecond*time.Duration(rerun+1))) != nil {
			return err
		}
	}
}
