package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

func (l ledger) begins(t *testing.T, id int64) (n int) {
	t.Helper()
	require.NoError(t, l.db.Raw("SELECT begins FROM outbox_messages WHERE id = ?", id).Scan(&n).Error)
	return n
}

// diedIn leaves what n processes leave that died in the effect of a redelivered message.
func (l ledger) diedIn(t *testing.T, n int, id int64) {
	t.Helper()
	l.exec(t, "UPDATE outbox_messages SET begins = begins + ? WHERE id = ?", n, id)
}

func TestHandle_CountsADeliveryThatKeepsKillingItsProcess(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	d := l.delivery(t, m.ID)
	d.Redeliveries = 1
	l.diedIn(t, 3, m.ID)
	for _, want := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDuplicate} {
		outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error {
			t.Error("the effect ran")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, want, outcome, "also a second copy of it never runs again")
	}
	r := l.record(t, m.ID)
	require.Equal(t, 1, r.Attempts)
	require.Contains(t, r.LastError, "died while handling")
	require.Zero(t, l.begins(t, m.ID), "the next attempt has its own")
}

func TestObserver_HearsWhyADeliveryCameToNoEffect(t *testing.T) {
	t.Parallel()
	type said struct {
		attempt int
		outcome outbox.Outcome
		why     string
	}
	var heard []said
	l := newLedger(t, outbox.StoreConfig{MaxAttempts: 2, Backoff: func(int) time.Duration { return 0 }, Observer: outbox.Observer{
		Attempted: func(d outbox.Delivery, outcome outbox.Outcome, why string) {
			heard = append(heard, said{d.Attempt, outcome, why})
		},
	}})
	handle := func(id int64, err error) {
		d := l.delivery(t, id)
		for range 2 { // the copy is not counted, and not told
			_, handleErr := l.Handle(t.Context(), d, func(*gorm.DB) error { return err })
			require.NoError(t, handleErr)
		}
	}
	m := l.enqueue(t, outbox.Message{Key: "1"})
	handle(m.ID, errEffect)
	handle(m.ID, errEffect)
	handle(l.enqueue(t, outbox.Message{}).ID, nil)

	m = l.enqueue(t, outbox.Message{Key: "2"})
	for repairs := range 11 {
		l.exec(t, "UPDATE outbox_messages SET state = 'published', repairs = ? WHERE id = ?", repairs, m.ID)
		require.NoError(t, l.Unrouted(t.Context(), l.delivery(t, m.ID)))
	}

	const unrouted = "no queue was bound for the topic"
	want := []said{{1, outbox.OutcomeRetry, errEffect.Error()}, {2, outbox.OutcomeDead, errEffect.Error()}}
	for range 10 {
		want = append(want, said{0, outbox.OutcomeRetry, unrouted})
	}
	require.Equal(t, append(want, said{0, outbox.OutcomeDead, unrouted}), heard)
	require.Equal(t, unrouted, l.record(t, m.ID).LastError)
}

func TestHandle_NotesOnlyEffectsThatHaveBegun(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	l.exec(t, "UPDATE outbox_messages SET state = 'published'")
	revision := l.scalar(t, "SELECT revision FROM outbox_messages")
	for redeliveries, noted := range map[int]int{0: 0, 1: 1, 50: 1} { // whatever waited in processes that ended
		d := l.delivery(t, m.ID)
		d.Redeliveries = redeliveries
		ran := false
		ctx, cancel := context.WithCancel(t.Context())
		_, err := l.Handle(ctx, d, func(*gorm.DB) error {
			ran = true
			defer cancel()
			require.Equal(t, noted, l.begins(t, m.ID)) // what is left if the process dies here
			require.Equal(t, revision, l.scalar(t, "SELECT revision FROM outbox_messages"), "no news for the settler")
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, ran)
		require.Zero(t, l.begins(t, m.ID), "a drain is no death")
	}
	// What may not take effect has not begun.
	l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 200000 MICROSECOND")
	d := l.delivery(t, m.ID)
	d.Redeliveries = 1
	outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error {
		require.Zero(t, l.begins(t, m.ID))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
}

// However often drains interrupt an effect, and whether it heeds them or not: that is no death.
func TestHandle_TakesBackTheBeginOfAnInterruptedEffect(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	d := l.delivery(t, m.ID)
	goOn := make(chan struct{})
	defer close(goOn)
	for d.Redeliveries = 1; d.Redeliveries <= 6; d.Redeliveries++ {
		ctx, cancel := context.WithCancel(t.Context())
		start, heeds := time.Now(), d.Redeliveries != 3
		_, err := l.Handle(ctx, d, func(*gorm.DB) error {
			require.Equal(t, 1, l.begins(t, m.ID))
			cancel()
			if !heeds {
				<-goOn
			}
			return ctx.Err()
		})
		require.Error(t, err)
		require.Less(t, time.Since(start), 2*time.Second, "a drain waits for no longer")
		require.Zero(t, l.begins(t, m.ID))
	}
	require.Zero(t, l.record(t, m.ID).Attempts)
}

// An effect that brings its deadlocks about by itself must not be tried for ever.
func TestHandle_CountsAnEffectThatLosesEveryDeadlock(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	d := l.delivery(t, m.ID)
	d.Redeliveries = 1
	for range 3 {
		_, err := l.Handle(t.Context(), d, func(*gorm.DB) error { return &mysql.MySQLError{Number: 1213} })
		require.True(t, outbox.IsRetryable(err))
		require.Zero(t, l.record(t, m.ID).Attempts)
	}
	outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error { return nil })
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome)
}

// Repairs count what was sent again without a delivery seen, and begins what has happened since the last attempt.
func TestHandle_StartsItsCountsAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for name, c := range map[string]struct {
		delay time.Duration
		what  func(m outbox.Message)
	}{
		"an attempt": {0, func(m outbox.Message) {
			_, err := l.Handle(t.Context(), l.delivery(t, m.ID), func(*gorm.DB) error { return errEffect })
			require.NoError(t, err)
		}},
		"put back": {time.Hour, func(m outbox.Message) {
			outcome, err := l.Handle(t.Context(), l.delivery(t, m.ID), func(*gorm.DB) error { return errEffect })
			require.NoError(t, err)
			require.Equal(t, outbox.OutcomeEarly, outcome)
		}},
		"rescheduled": {time.Hour, func(m outbox.Message) {
			l.tx(t, func(tx *gorm.DB) error { return l.Reschedule(t.Context(), tx, m.Topic, m.Key, time.Now()) })
		}},
		"requeued": {0, func(m outbox.Message) {
			l.exec(t, "UPDATE outbox_messages SET state = 'dead' WHERE id = ?", m.ID)
			l.act(t, m.ID, outbox.ActRequeue)
		}},
		"ended its transaction": {0, func(m outbox.Message) {
			_, err := l.SQL().Handle(t.Context(), l.delivery(t, m.ID), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "COMMIT")
				require.NoError(t, err)
				return errEffect
			})
			require.NoError(t, err)
		}},
	} {
		m := l.enqueue(t, outbox.Message{Key: name, Delay: c.delay})
		l.exec(t, "UPDATE outbox_messages SET begins = 2, repairs = 9 WHERE id = ?", m.ID)
		c.what(m)
		require.Equal(t, outbox.Scheduled, l.record(t, m.ID).State, name)
		require.Zero(t, l.record(t, m.ID).Repairs, name)
		require.Zero(t, l.begins(t, m.ID), name)
	}
}
