package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

// lock keeps rows locked as an open transaction of a caller, or the effect of a frozen process, does.
func (l ledger) lock(t *testing.T, ids ...int64) (unlock func()) {
	t.Helper()
	tx := l.db.Begin()
	require.NoError(t, tx.Error)
	require.NoError(t, tx.Exec("UPDATE outbox_messages SET last_error = 'locked' WHERE id IN ?", ids).Error)
	t.Cleanup(func() { tx.Rollback() })
	return func() { require.NoError(t, tx.Rollback().Error) }
}

func TestHandle_LeavesAMessageThatStaysLocked(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ids := make([]int64, 20)
	for i := range ids {
		ids[i] = l.enqueue(t, outbox.Message{}).ID
	}
	free := l.enqueue(t, outbox.Message{})
	d := make([]outbox.Delivery, len(ids))
	for i, id := range ids {
		d[i] = l.delivery(t, id)
		d[i].Redeliveries = i % 2 // with and without a note of the begin
	}
	unlock := l.lock(t, ids...)
	start := time.Now()
	for i := range ids {
		outcome, err := l.Handle(t.Context(), d[i], func(*gorm.DB) error {
			t.Error("the effect ran")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeBusy, outcome)
	}
	require.Less(t, time.Since(start), 15*time.Second, "only the first one waits")
	nothing := func(*gorm.DB) error { return nil }
	outcome, err := l.Handle(t.Context(), l.delivery(t, free.ID), nothing)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome, "its neighbours are none the worse")

	unlock()
	for i := range ids {
		require.Zero(t, l.record(t, ids[i]).Attempts)
		require.Zero(t, l.begins(t, ids[i]))
		outcome, err := l.Handle(t.Context(), d[i], nothing)
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeDone, outcome)
	}
	gone := l.delivery(t, free.ID)
	gone.ID = 1 << 40
	outcome, err = l.Handle(t.Context(), gone, nothing)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeUnknown, outcome, "what is not there is not locked")
}

func TestHandle_WaitsForALockThatIsShort(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	d := l.delivery(t, m.ID)
	time.AfterFunc(time.Second, l.lock(t, m.ID))
	outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error { return nil })
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
}

// A pool whose sessions wait for locks as long as the server's default says must not keep its worker for so long.
func TestHandle_DoesNotWaitAsLongAsTheServerWould(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	d := l.delivery(t, m.ID)
	l.lock(t, m.ID)
	pool, err := l.db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(2) // one has the lock
	l.exec(t, "SET SESSION innodb_lock_wait_timeout = 50")
	start := time.Now()
	outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error { return nil })
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeBusy, outcome)
	require.Less(t, time.Since(start), 15*time.Second)
}

// An effect that loses its connection each time is not an outage; see TestScenario24_OutageSpendsNoAttempts for one that is.
func TestHandle_CountsAnEffectThatBreaksItsConnection(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for name, effect := range map[string]func(tx *sql.Tx) error{
		"ended by the server": func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "KILL CONNECTION CONNECTION_ID()")
			return err
		},
		"idle for too long": func(tx *sql.Tx) error {
			var id int
			if err := tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				return err
			}
			_, err := tx.ExecContext(t.Context(), "SET SESSION wait_timeout = 1")
			eventually(t, "ended by the server", func() bool {
				return l.scalar(t, fmt.Sprint("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ", id)) == 0
			})
			return err
		},
		"statement interrupted": func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "KILL QUERY CONNECTION_ID()")
			return err
		},
	} {
		for came, redeliveries := range map[string]int{"first": 0, "again": 1} {
			m := l.enqueue(t, outbox.Message{Key: name + came})
			d := l.delivery(t, m.ID)
			d.Redeliveries = redeliveries
			for i := range 2 {
				_, err := l.SQL().Handle(t.Context(), d, effect)
				require.Error(t, err, name)
				require.Zero(t, l.record(t, m.ID).Attempts, name)
				require.Equal(t, i+1, l.begins(t, m.ID), name)
			}
			outcome, err := l.SQL().Handle(t.Context(), d, effect)
			require.NoError(t, err, name)
			require.Equal(t, outbox.OutcomeRetry, outcome, name)
			r := l.record(t, m.ID)
			require.Equal(t, 1, r.Attempts, name)
			require.NotEmpty(t, r.LastError, name)
			require.Zero(t, l.begins(t, m.ID), name)
		}
	}
}

// Rows that are left open put the connection out of step: what the server says next answers something else.
func TestHandle_CountsAnEffectThatLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	d := l.delivery(t, m.ID)
	require.Eventually(t, func() bool {
		outcome, err := l.SQL().Handle(t.Context(), d, func(tx *sql.Tx) error {
			rows, err := tx.QueryContext(context.WithoutCancel(t.Context()), "SELECT 1 UNION SELECT 2")
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = rows.Close() })
			rows.Next()
			return rows.Err()
		})
		return err == nil && outcome == outbox.OutcomeRetry
	}, wait, time.Millisecond)
	require.Equal(t, 1, l.record(t, m.ID).Attempts)
	require.Equal(t, outbox.Scheduled, l.record(t, m.ID).State)
}
