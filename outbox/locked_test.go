package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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
	end := sync.OnceValue(func() error { return tx.Rollback().Error }) // a handle must not be ended by two at a time
	t.Cleanup(func() { _ = end() })
	return func() { require.NoError(t, end()) }
}

func TestHandle_LeavesAMessageThatStaysLocked(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ids := make([]int64, 200)
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
			l.exec(t, fmt.Sprint("KILL ", connectionID(t, tx)))
			return nil
		},
		"idle for too long": func(tx *sql.Tx) error {
			id := connectionID(t, tx)
			_, err := tx.ExecContext(t.Context(), "SET SESSION wait_timeout = 1")
			eventually(t, "ended by the server", func() bool {
				return l.scalar(t, fmt.Sprint("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ", id)) == 0
			})
			return err
		},
		"statement interrupted": func(*sql.Tx) error { return &mysql.MySQLError{Number: 1317} },
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

func connectionID(t *testing.T, tx *sql.Tx) (id int) {
	t.Helper()
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
	return id
}

// Somebody has the row locked that an effect needs, a product's mostly. The effect is not to blame, and must not occupy its worker.
func TestHandle_PutsOffAnEffectThatWaitsForALock(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, "CREATE TABLE things (id INT PRIMARY KEY, n INT NOT NULL)")
	l.exec(t, "INSERT INTO things VALUES (1, 0)")
	holder := l.db.Begin()
	require.NoError(t, holder.Error)
	defer holder.Rollback()
	require.NoError(t, holder.Exec("UPDATE things SET n = n + 1").Error)
	effect := func(tx *gorm.DB) error { return tx.Exec("UPDATE things SET n = n + 1 WHERE id = 1").Error }
	for came, redeliveries := range map[string]int{"first": 0, "again": 1} {
		m := l.enqueue(t, outbox.Message{Key: came})
		d := l.delivery(t, m.ID)
		d.Redeliveries = redeliveries
		start := time.Now()
		outcome, err := l.Handle(within(t, 20*time.Second), d, effect)
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeBusy, outcome)
		require.Less(t, time.Since(start), 10*time.Second)
		r := l.record(t, m.ID)
		require.Equal(t, outbox.Scheduled, r.State)
		require.Zero(t, r.Attempts)
		require.Contains(t, r.LastError, "Lock wait timeout")
		require.Zero(t, l.begins(t, m.ID))
		require.Equal(t, 1, l.count(t, "id = ? AND available_at BETWEEN UTC_TIMESTAMP(6) AND UTC_TIMESTAMP(6) + INTERVAL 5 SECOND", m.ID))
	}
	m := l.enqueue(t, outbox.Message{Key: "late", Delay: -2 * time.Hour})
	outcome, err := l.Handle(t.Context(), l.delivery(t, m.ID), effect)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome, "what goes on for so long comes to an end")
	require.Equal(t, 1, l.record(t, m.ID).Attempts)
	require.NoError(t, holder.Rollback().Error)
	outcome, err = l.Handle(t.Context(), l.delivery(t, m.ID), effect)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
}

// What no relay could read, or all would pass over, is refused by the database, whoever writes it.
func TestMigrations_KeepOutWhatNoRelayCanTake(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Delay: time.Hour})
	before := l.record(t, m.ID)
	for _, damage := range []string{
		"due_at = '0000-00-00'", "available_at = '0000-00-00'", "available_at = NULL", "state = 'published', available_at = NULL",
		"due_at = '1969-12-31 23:59:59'", "shard = 16", "due_at = NULL",
	} {
		require.Error(t, l.db.Exec("UPDATE outbox_messages SET "+damage).Error, damage)
	}
	require.Equal(t, before, l.record(t, m.ID))
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
