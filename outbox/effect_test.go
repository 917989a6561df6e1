package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

// within is a context whose deadline is near.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestHandle_GivesUpAnEffectThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, canceled := range map[string]bool{"deadline": false, "drain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var overran atomic.Int64
			l := newLedger(t, outbox.StoreConfig{Observer: outbox.Observer{Overran: func(topic string, n int) {
				require.Equal(t, "test", topic)
				overran.Add(int64(n))
			}}})
			record := l.effects(t)
			handle := map[string]func(ctx context.Context, d outbox.Delivery, hang func(tx *sql.Tx) error) (outbox.Outcome, error){
				"sql": func(ctx context.Context, d outbox.Delivery, hang func(tx *sql.Tx) error) (outbox.Outcome, error) {
					return l.SQL().Handle(ctx, d, hang)
				},
				"gorm": func(ctx context.Context, d outbox.Delivery, hang func(tx *sql.Tx) error) (outbox.Outcome, error) {
					return l.Handle(ctx, d, func(tx *gorm.DB) error {
						raw, ok := tx.Statement.ConnPool.(*sql.Tx)
						require.True(t, ok)
						return hang(raw)
					})
				},
			}
			goOn, late := make(chan struct{}), make(chan error, 2*len(handle))
			hang := func(tx *sql.Tx) error {
				if err := record(tx, 1); err != nil {
					return err
				}
				<-goOn
				_, err := tx.ExecContext(context.WithoutCancel(t.Context()), "INSERT INTO effects VALUES (1, UTC_TIMESTAMP(6))")
				late <- err
				late <- tx.Commit()
				return nil
			}
			for form, handle := range handle {
				m := l.enqueue(t, outbox.Message{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if canceled {
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
				}
				start := time.Now()
				outcome, err := handle(ctx, l.delivery(t, m.ID), hang)
				require.Less(t, time.Since(start), 10*time.Second)
				r := l.record(t, m.ID)
				if canceled {
					require.ErrorContains(t, err, "did not return", form)
					require.Zero(t, r.Attempts, form)
				} else {
					require.NoError(t, err, form)
					require.Equal(t, outbox.OutcomeRetry, outcome, form)
					require.Equal(t, 1, r.Attempts, form)
					require.Equal(t, "the effect did not return when its deadline had passed", r.LastError, form)
				}
			}
			require.EqualValues(t, len(handle), overran.Load())
			close(goOn)
			for range 2 * len(handle) {
				require.ErrorIs(t, <-late, sql.ErrTxDone, "it can do nothing any more")
			}
			eventually(t, "returned at last", func() bool { return overran.Load() == 0 })
			require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM effects"))
			require.Equal(t, len(handle), l.count(t, "state = 'scheduled'"))
		})
	}
}

// The transaction cannot be rolled back, and the message not written, before the statement that runs in it has ended.
func TestHandle_CountsAnEffectWhoseStatementOutlivesItsDeadline(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	outcome, err := l.SQL().Handle(within(t, time.Second), l.delivery(t, m.ID), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(context.WithoutCancel(t.Context()), "DO SLEEP(3)")
		return err
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome)
	require.Equal(t, 1, l.record(t, m.ID).Attempts)
}

func TestHandle_CountsAnEffectThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	m := l.enqueue(t, outbox.Message{})
	outcome, err := l.SQL().Handle(t.Context(), l.delivery(t, m.ID), func(tx *sql.Tx) error {
		require.NoError(t, record(tx, m.ID))
		runtime.Goexit()
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome)
	require.Contains(t, l.record(t, m.ID).LastError, "runtime.Goexit")
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM effects"))
}

// Whoever has had all its time is to blame, whatever it returns then; whoever was told to end is not.
func TestHandle_CountsWhatOverranItsDeadlineAndNotWhatWasCanceled(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for name, returns := range map[string]error{
		"nothing": nil, "an error of its own": errors.New("no answer"), "cancellation": context.Canceled, "its deadline": context.DeadlineExceeded,
		"an outage": driver.ErrBadConn, "a deadlock": &mysql.MySQLError{Number: 1213}, "a transaction that has ended": sql.ErrTxDone,
	} {
		m := l.enqueue(t, outbox.Message{Key: name})
		ctx := within(t, 500*time.Millisecond) // it must have begun by then
		outcome, err := l.Handle(ctx, l.delivery(t, m.ID), func(*gorm.DB) error {
			<-ctx.Done()
			return returns
		})
		require.NoError(t, err, name)
		require.Equal(t, outbox.OutcomeRetry, outcome, name)
		require.Equal(t, 1, l.record(t, m.ID).Attempts, name)

		d := l.delivery(t, m.ID)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = l.Handle(ctx, d, func(*gorm.DB) error {
			cancel()
			return returns
		})
		require.Error(t, err, name)
		require.Equal(t, 1, l.record(t, m.ID).Attempts, name)
	}
	require.Equal(t, 7, l.count(t, "state = 'scheduled' AND live_key = message_key"))
}
