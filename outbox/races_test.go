package outbox_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

// Scenario 26: two relays and the reconciler race on each row, whose publications are confirmed late and delivered twice: a
// finished row never comes back to life.
func TestScenario26_FinishedRowsNeverComeBackToLife(t *testing.T) {
	t.Parallel()
	dsn := devDSN(t)
	l := openLedger(t, dsn, outbox.StoreConfig{})
	const messages = 400
	broker := newBroker(t)
	record := l.effects(t)
	l.consume(t, broker, 4, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	ctx, cancel := context.WithCancel(t.Context())
	var racing sync.WaitGroup
	race := func(do func() error) {
		racing.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, owner := range []string{"one", "two"} {
		other := openLedger(t, dsn, outbox.StoreConfig{})
		// The shards go to and fro, so that both relays have the same row in flight at times.
		other.start(t, slowly{broker}, outbox.RelayConfig{Owner: owner, Poll: quick, Lease: 500 * time.Millisecond, Grace: time.Millisecond})
		rec := other.reconciler(t, outbox.ReconcileConfig{Grace: time.Millisecond})
		race(func() error {
			_, err := rec.Run(ctx, outbox.Scope{})
			return err
		})
	}
	race(func() error {
		err := l.db.WithContext(ctx).Exec("UPDATE outbox_shards SET expires_at = UTC_TIMESTAMP(6) WHERE shard = ?", rand.IntN(16)).Error
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return err
	})
	// A repair doubles its pause: without this the race would be over soon.
	race(func() error {
		err := l.db.WithContext(ctx).Exec(`UPDATE outbox_messages SET repairs = 0, available_at = UTC_TIMESTAMP(6)
			WHERE state = 'published' AND id % 2 = ?`, rand.IntN(2)).Error
		if outbox.IsRetryable(err) {
			return nil
		}
		return err
	})
	var ended sync.Map // id -> the revision with which it was first seen done
	race(func() error {
		var rows []struct {
			ID, Revision int64
			State        outbox.State
		}
		if err := l.db.WithContext(ctx).Raw("SELECT id, revision, state FROM outbox_messages").Scan(&rows).Error; err != nil {
			return err
		}
		for _, row := range rows {
			if row.State == outbox.Done {
				ended.LoadOrStore(row.ID, row.Revision)
			}
			if revision, ok := ended.Load(row.ID); ok && (row.State != outbox.Done || revision != row.Revision) {
				t.Errorf("message %d is %s in revision %d after it was done in %v", row.ID, row.State, row.Revision, revision)
			}
		}
		return nil
	})
	for range messages {
		l.enqueue(t, outbox.Message{Delay: time.Duration(rand.IntN(2000)) * time.Millisecond})
	}
	require.Eventually(t, func() bool { return l.count(t, "state = 'done'") == messages }, 3*wait, 50*time.Millisecond)
	cancel()
	racing.Wait()
	require.Equal(t, messages, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, messages, l.scalar(t, "SELECT COUNT(DISTINCT message) FROM effects"))
	require.Positive(t, l.count(t, "publishes > 1"), "there was a race")
}

// slowly publishes each batch twice, and answers some time after it was taken.
type slowly struct{ outbox.Publisher }

func (s slowly) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	s.Publisher.Publish(ctx, batch)
	receipts := s.Publisher.Publish(ctx, batch)
	select {
	case <-time.After(time.Duration(rand.IntN(300)) * time.Millisecond):
	case <-ctx.Done():
	}
	return receipts
}

// Scenario 25: the broker is slowed to 2 s per confirm and the lease is short: a lease is renewed while confirms are waited for,
// and another relay takes over what one that vanished had in flight. Effects once.
func TestScenario25_SlowConfirmsAndAShortLease(t *testing.T) {
	t.Parallel()
	dsn := devDSN(t)
	var lost atomic.Int64
	l := openLedger(t, dsn, outbox.StoreConfig{})
	broker := newBroker(t)
	record := l.effects(t)
	l.consume(t, broker, 4, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	relay := func(owner string) (stop func()) {
		other := openLedger(t, dsn, outbox.StoreConfig{Observer: outbox.Observer{LeaseLost: func(n int) { lost.Add(int64(n)) }}})
		return other.start(t, confirming{broker, 2 * time.Second}, outbox.RelayConfig{
			Owner: owner, Poll: quick, Lease: time.Second, DrainTimeout: time.Millisecond,
		})
	}
	const messages = 300
	for range messages {
		l.enqueue(t, outbox.Message{Delay: time.Duration(rand.IntN(3000)) * time.Millisecond})
	}
	vanish := relay("first")
	eventually(t, "a batch is in flight", func() bool { return len(broker.Published()) > 0 })
	require.Zero(t, l.count(t, "state = 'published'"))
	vanish() // without waiting for confirms
	relay("second")
	eventually(t, "all take effect", func() bool { return l.count(t, "state = 'done'") == messages })
	require.Equal(t, messages, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Zero(t, lost.Load(), "a lease outlives a slow confirm")
}

// confirming answers some time after a batch was taken, as long as its caller waits.
type confirming struct {
	outbox.Publisher

	after time.Duration
}

func (c confirming) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	receipts := c.Publisher.Publish(ctx, batch)
	select {
	case <-time.After(c.after):
	case <-ctx.Done():
		for i := range receipts {
			receipts[i].Err = outbox.ErrUnconfirmed
		}
	}
	return receipts
}
