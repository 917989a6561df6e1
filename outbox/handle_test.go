package outbox_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

var errEffect = errors.New("no stock service")

func TestHandle_CommitsTheEffectOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	m := l.enqueue(t, outbox.Message{Key: "1"})
	d := l.delivery(t, m.ID)
	for i, want := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDuplicate, outbox.OutcomeDuplicate} {
		outcome, err := l.SQL().Handle(t.Context(), d, func(tx *sql.Tx) error { return record(tx, m.ID) })
		require.NoError(t, err)
		require.Equal(t, want, outcome, i)
	}
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, outbox.Done, l.record(t, m.ID).State)
}

func TestHandle_GivesGormEffectsTheTransactionOfTheGuard(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.effects(t)
	m := l.enqueue(t, outbox.Message{Key: "1"})
	d := l.delivery(t, m.ID)
	outcome, err := l.Handle(t.Context(), d, func(tx *gorm.DB) error {
		require.NoError(t, tx.Exec("INSERT INTO effects VALUES (?, UTC_TIMESTAMP(6))", m.ID).Error)
		// A follow-up message in the effect's transaction, under the key that this one has just freed.
		require.NoError(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Key: "1"}))
		return errEffect
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome)
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM effects"), "rolled back with the guard")
	require.Equal(t, 1, l.count(t, "TRUE"))
}

func TestHandle_SaysWhyTheGuardRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	fresh := func() (outbox.Message, outbox.Delivery) {
		m := l.enqueue(t, outbox.Message{})
		return m, l.delivery(t, m.ID)
	}
	for name, c := range map[string]struct {
		change func(m outbox.Message, d *outbox.Delivery)
		want   outbox.Outcome
		kept   int
	}{
		"canceled": {func(m outbox.Message, _ *outbox.Delivery) {
			l.exec(t, "UPDATE outbox_messages SET state = 'canceled' WHERE id = ?", m.ID)
		}, outbox.OutcomeCanceled, 0},
		"dead": {func(m outbox.Message, _ *outbox.Delivery) {
			l.exec(t, "UPDATE outbox_messages SET state = 'dead' WHERE id = ?", m.ID)
		}, outbox.OutcomeDead, 0},
		"stale": {func(m outbox.Message, _ *outbox.Delivery) {
			l.exec(t, "UPDATE outbox_messages SET generation = 2 WHERE id = ?", m.ID)
		}, outbox.OutcomeStale, 0},
		"other store":    {func(_ outbox.Message, d *outbox.Delivery) { d.Store = "other" }, outbox.OutcomeForeign, 1},
		"other topic":    {func(_ outbox.Message, d *outbox.Delivery) { d.Topic = "other" }, outbox.OutcomeUnknown, 1},
		"other key":      {func(_ outbox.Message, d *outbox.Delivery) { d.Key = "other" }, outbox.OutcomeUnknown, 1},
		"no such id":     {func(_ outbox.Message, d *outbox.Delivery) { d.ID = 1 << 40 }, outbox.OutcomeUnknown, 1},
		"new generation": {func(_ outbox.Message, d *outbox.Delivery) { d.Generation = 9 }, outbox.OutcomeUnknown, 1},
	} {
		before := l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted")
		m, d := fresh()
		c.change(m, &d)
		outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error {
			t.Errorf("%s: the effect ran", name)
			return nil
		})
		require.NoError(t, err, name)
		require.Equal(t, c.want, outcome, name)
		require.Equal(t, before+c.kept, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted"), name)
	}
}

func TestHandle_WaitsForWhatIsAlmostDue(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	m := l.enqueue(t, outbox.Message{Delay: 300 * time.Millisecond})
	outcome, err := l.SQL().Handle(t.Context(), l.delivery(t, m.ID), func(tx *sql.Tx) error { return record(tx, m.ID) })
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message WHERE e.at >= m.due_at"))
}

func TestHandle_AnEffectThatReturnsErrorsEndsDead(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{MaxAttempts: 3, Backoff: func(int) time.Duration { return 0 }})
	m := l.enqueue(t, outbox.Message{Key: "1"})
	for attempt, want := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeRetry, outbox.OutcomeDead} {
		d := l.delivery(t, m.ID)
		for _, want := range []outbox.Outcome{want, outbox.OutcomeDuplicate} { // a second copy never counts twice
			if attempt == 2 && want == outbox.OutcomeDuplicate {
				want = outbox.OutcomeDead
			}
			outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error {
				if attempt == 1 {
					panic("boom")
				}
				return errEffect
			})
			require.NoError(t, err)
			require.Equal(t, want, outcome, attempt)
		}
		r := l.record(t, m.ID)
		require.Equal(t, attempt+1, r.Attempts)
		require.NotEmpty(t, r.LastError)
	}
	require.Equal(t, outbox.Dead, l.record(t, m.ID).State)
	require.Equal(t, 1, l.count(t, "live_key = '1' AND available_at IS NULL"), "a dead message keeps its key and waits for nobody")
}

func TestHandle_AnOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for _, outage := range []error{&mysql.MySQLError{Number: 1053}, &mysql.MySQLError{Number: 1290}} {
		m := l.enqueue(t, outbox.Message{})
		_, err := l.Handle(t.Context(), l.delivery(t, m.ID), func(*gorm.DB) error { return fmt.Errorf("effect: %w", outage) })
		require.ErrorIs(t, err, outage)
	}
	// The connection dies, and whatever the effect makes of that is beside the point.
	for name, effect := range map[string]func(error) error{
		"returns it": func(err error) error { return err }, "hides it": func(error) error { return errEffect },
		"swallows it": func(error) error { return nil }, "panics": func(err error) error { panic(err) },
	} {
		m := l.enqueue(t, outbox.Message{})
		_, err := l.Handle(t.Context(), l.delivery(t, m.ID), func(tx *gorm.DB) error {
			var id int
			require.NoError(t, tx.Raw("SELECT CONNECTION_ID()").Scan(&id).Error)
			l.exec(t, fmt.Sprint("KILL ", id))
			err := tx.Exec("UPDATE outbox_messages SET publishes = 7").Error
			require.Error(t, err)
			return effect(err)
		})
		require.True(t, outbox.IsOutage(err), "%s: %v", name, err)
	}
	require.Equal(t, 6, l.count(t, "state = 'scheduled' AND attempts = 0 AND publishes = 0"))
}

// A payload that ends too early is read with io.ErrUnexpectedEOF, and another database has outages of its own.
func TestHandle_CountsWhatOnlyLooksLikeAnOutage(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, mysql.ErrInvalidConn} {
		m := l.enqueue(t, outbox.Message{})
		outcome, handleErr := l.Handle(t.Context(), l.delivery(t, m.ID), func(*gorm.DB) error { return fmt.Errorf("read: %w", err) })
		require.NoError(t, handleErr)
		require.Equal(t, outbox.OutcomeRetry, outcome, err)
		require.Equal(t, "read: "+err.Error(), l.record(t, m.ID).LastError)
	}
}

func TestHandle_RunsATransactionThatLostADeadlockAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	m := l.enqueue(t, outbox.Message{})
	ran := 0
	outcome, err := l.SQL().Handle(t.Context(), l.delivery(t, m.ID), func(tx *sql.Tx) error {
		if err := record(tx, m.ID); err != nil {
			return err
		}
		if ran++; ran < 3 {
			return fmt.Errorf("reserve: %w", &mysql.MySQLError{Number: []uint16{1213, 1020}[ran-1]})
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Zero(t, l.record(t, m.ID).Attempts)
}

// Scenario 8: a message delivered 30 min early must not take effect; it takes effect at its time.
func TestScenario08_EarlyDeliveryIsPutBackAndPublishedAtItsTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	m := l.enqueue(t, outbox.Message{Key: "1", Delay: 30 * time.Minute})
	l.exec(t, "UPDATE outbox_messages SET state = 'published'")
	early := l.delivery(t, m.ID)
	for range 3 { // however often the broker fires too soon
		outcome, err := l.Handle(t.Context(), early, func(*gorm.DB) error {
			t.Error("the effect ran")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeEarly, outcome)
	}
	require.Equal(t, 1, l.count(t, "held AND state = 'scheduled' AND available_at = due_at"))

	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Horizon: time.Hour, Poll: 5 * time.Millisecond})
	l.consume(t, broker, 1, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	l.exec(t, `UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1500000 MICROSECOND,
		available_at = due_at, revision = revision + 1`)
	eventually(t, "takes effect", func() bool { return l.record(t, m.ID).State == outbox.Done })
	require.Len(t, broker.Published(), 1, "not handed over before its time, however long the horizon")
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message WHERE e.at >= m.due_at"))
}

// Scenario 23: 32 consumers, 5,000 messages, each delivered twice: 5,000 effects; deadlocks retry the whole transaction.
func TestScenario23_EachMessageDeliveredTwiceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	const messages = 5000
	l.exec(t, "CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL)")
	l.exec(t, "INSERT INTO hot VALUES (0, 0), (1, 0)")
	l.tx(t, func(tx *gorm.DB) error {
		for range messages {
			if err := l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test"}); err != nil {
				return err
			}
		}
		return nil
	})
	store, err := l.StoreID(t.Context())
	require.NoError(t, err)
	type row struct {
		ID  int64
		Due string
	}
	var rows []row
	require.NoError(t, l.db.Raw("SELECT id FROM outbox_messages").Scan(&rows).Error)
	deliveries := make(chan outbox.Delivery, 2*messages)
	for range 2 {
		for _, r := range rows {
			deliveries <- outbox.Delivery{Store: store, ID: r.ID, Topic: "test", Generation: 1, DueAt: time.Now()}
		}
	}
	close(deliveries)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for d := range deliveries {
				_, err := l.SQL().Handle(t.Context(), d, func(tx *sql.Tx) error {
					if err := record(tx, d.ID); err != nil {
						return err
					}
					if d.ID%50 != 0 {
						return nil
					}
					for i := range 2 { // in either order: some of them deadlock
						if _, err := tx.ExecContext(t.Context(), "UPDATE hot SET n = n + 1 WHERE id = ?", (d.ID/50+int64(i))%2); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("handle: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, messages, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, messages, l.scalar(t, "SELECT COUNT(DISTINCT message) FROM effects"))
	require.Equal(t, messages, l.count(t, "state = 'done' AND attempts = 0"))
	require.Equal(t, messages/50, l.scalar(t, "SELECT MIN(n) FROM hot"))
	require.Equal(t, messages/50, l.scalar(t, "SELECT MAX(n) FROM hot"))
}

func TestHandle_NoticesAnEffectThatEndedItsTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	for name, c := range map[string]struct {
		statement string
		err       error
		outcome   outbox.Outcome
		state     outbox.State
		effects   int
	}{
		"rollback":                {"ROLLBACK", nil, outbox.OutcomeRetry, outbox.Scheduled, 0},
		"rollback, then an error": {"ROLLBACK", errEffect, outbox.OutcomeRetry, outbox.Scheduled, 0},
		"commit":                  {"COMMIT", nil, outbox.OutcomeDone, outbox.Done, 1},
		"commit, then an error":   {"COMMIT", errEffect, outbox.OutcomeRetry, outbox.Scheduled, 1},
		"DDL, then an error":      {"CREATE TABLE IF NOT EXISTS implicit (id INT)", errEffect, outbox.OutcomeRetry, outbox.Scheduled, 1},
	} {
		l.exec(t, "DELETE FROM effects")
		m := l.enqueue(t, outbox.Message{Key: name})
		outcome, err := l.SQL().Handle(t.Context(), l.delivery(t, m.ID), func(tx *sql.Tx) error {
			require.NoError(t, record(tx, m.ID))
			_, err := tx.ExecContext(t.Context(), c.statement)
			require.NoError(t, err)
			return c.err
		})
		require.NoError(t, err, name)
		require.Equal(t, c.outcome, outcome, name)
		require.Equal(t, c.state, l.record(t, m.ID).State, name)
		require.Equal(t, c.effects, l.scalar(t, "SELECT COUNT(*) FROM effects"), name)
		if c.outcome == outbox.OutcomeRetry {
			require.Contains(t, l.record(t, m.ID).LastError, "ended its own transaction", name)
			_, err := l.Lookup(t.Context(), "test", name)
			require.NoError(t, err, "%s: its key is live again", name)
		}
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestHandle_SurvivesAnErrorThatPanics(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{})
	outcome, err := l.Handle(t.Context(), l.delivery(t, m.ID), func(*gorm.DB) error {
		var typed *nilError
		return typed
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome)
	require.Contains(t, l.record(t, m.ID).LastError, "nilError")
}
