package outbox_test

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

// requireRefused makes sure that neither call lets d pass.
func (l ledger) requireRefused(t *testing.T, d outbox.Delivery, want outbox.Outcome) {
	t.Helper()
	for _, call := range []func() error{
		func() error { return l.MayRun(t.Context(), d) }, func() error { return l.Finish(t.Context(), d) },
	} {
		var refused *outbox.RefusedError
		require.ErrorAs(t, call(), &refused)
		require.Equal(t, want, refused.Outcome)
		require.Equal(t, want == outbox.OutcomeEarly, refused.Early > 0)
	}
}

func TestFinish_DoesWhatTheGuardDoes(t *testing.T) {
	t.Parallel()
	var finished []string
	l := newLedger(t, outbox.StoreConfig{Observer: outbox.Observer{Delivered: func(topic string, outcome outbox.Outcome, late time.Duration) {
		finished = append(finished, topic+" "+string(outcome))
		if late < 0 {
			t.Error(late)
		}
	}}})
	one, other := l.enqueue(t, outbox.Message{Key: "1"}), l.enqueue(t, outbox.Message{Key: "2"})
	l.exec(t, "UPDATE outbox_messages SET state = 'published', held = TRUE WHERE id = ?", one.ID)
	d := l.delivery(t, one.ID)
	require.NoError(t, l.MayRun(t.Context(), d))
	require.NoError(t, l.MayRun(t.Context(), outbox.Delivery{ID: d.ID, Generation: 1}), "the store need not be told")
	require.NoError(t, l.Finish(t.Context(), d))
	require.NoError(t, l.Finish(t.Context(), d), "once more is no error")
	outcome, err := l.SQL().Handle(t.Context(), l.delivery(t, other.ID), func(*sql.Tx) error { return nil })
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
	require.Equal(t, 1, l.scalar(t, `SELECT COUNT(*) FROM outbox_messages AS a JOIN outbox_messages AS b ON a.id < b.id
		WHERE a.state = 'done' AND b.state = 'done' AND a.live_key IS NULL AND b.live_key IS NULL AND a.revision = b.revision
			AND a.held = b.held AND TIMESTAMPDIFF(MICROSECOND, a.finished_at, a.available_at) = TIMESTAMPDIFF(MICROSECOND, b.finished_at, b.available_at)`))
	require.Equal(t, []string{"test done", "test done"}, finished)

	var refused *outbox.RefusedError
	require.ErrorAs(t, l.MayRun(t.Context(), d), &refused)
	require.Equal(t, outbox.OutcomeDuplicate, refused.Outcome)
}

func TestFinish_SaysWhyNot(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for want, change := range map[outbox.Outcome]string{
		outbox.OutcomeCanceled: "state = 'canceled', live_key = NULL", outbox.OutcomeDead: "state = 'dead'", outbox.OutcomeStale: "generation = 2",
		outbox.OutcomeUnknown: "generation = 0", outbox.OutcomeEarly: "due_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
	} {
		m := l.enqueue(t, outbox.Message{})
		d := l.delivery(t, m.ID)
		l.exec(t, "UPDATE outbox_messages SET "+change+" WHERE id = ?", m.ID)
		before := l.record(t, m.ID)
		l.requireRefused(t, d, want)
		require.Equal(t, before, l.record(t, m.ID), want)
	}
	d := l.delivery(t, l.enqueue(t, outbox.Message{}).ID)
	d.Store = "other"
	l.requireRefused(t, d, outbox.OutcomeForeign)
	l.requireRefused(t, outbox.Delivery{ID: 1 << 40, Generation: 1}, outbox.OutcomeUnknown)
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted"))
}

func TestMayRun_WaitsForWhatIsAlmostDue(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Delay: 300 * time.Millisecond})
	require.NoError(t, l.MayRun(t.Context(), l.delivery(t, m.ID)))
	require.Equal(t, 1, l.count(t, "due_at <= UTC_TIMESTAMP(6)"))
}

// Of those who finish and withdraw a message at once, one wins, and all are told the truth.
func TestFinish_RacesWithCancel(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for range 40 {
		m := l.enqueue(t, outbox.Message{Key: "1"})
		d := l.delivery(t, m.ID)
		var (
			wg       sync.WaitGroup
			finished [4]error
			canceled error
		)
		for i := range finished {
			wg.Go(func() { finished[i] = l.Finish(t.Context(), d) })
		}
		wg.Go(func() { canceled = l.Direct().Cancel(t.Context(), "test", "1") })
		wg.Wait()
		if canceled == nil {
			require.Equal(t, outbox.Canceled, l.record(t, m.ID).State)
		} else {
			require.ErrorIs(t, canceled, outbox.ErrNoMessage)
			require.Equal(t, outbox.Done, l.record(t, m.ID).State)
		}
		for _, err := range finished {
			if canceled != nil {
				require.NoError(t, err)
				continue
			}
			var refused *outbox.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, outbox.OutcomeCanceled, refused.Outcome)
		}
	}
}

func TestDirect_IsATransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	q := l.Direct()
	m := outbox.Message{Topic: "a", Key: "1", Delay: time.Hour}
	r, err := q.Enqueue(t.Context(), &m)
	require.NoError(t, err)
	require.Equal(t, l.record(t, m.ID), r)
	_, err = q.Enqueue(t.Context(), &m)
	require.ErrorIs(t, err, outbox.ErrDuplicateKey)
	due := time.Date(2031, 5, 6, 7, 8, 9, 123_456_001, time.UTC)
	r, err = q.Reschedule(t.Context(), "a", "1", due, 0)
	require.NoError(t, err)
	require.Equal(t, due.Add(999), r.DueAt)
	require.EqualValues(t, 2, r.Generation)
	_, err = q.Reschedule(t.Context(), "a", "1", time.Time{}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, l.count(t, "due_at BETWEEN UTC_TIMESTAMP(6) + INTERVAL 50 SECOND AND UTC_TIMESTAMP(6) + INTERVAL 60 SECOND"))
	_, err = q.Reschedule(t.Context(), "a", "1", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 0)
	require.ErrorIs(t, err, outbox.ErrInvalidMessage)
	_, err = q.Reschedule(t.Context(), "a", "2", due, 0)
	require.ErrorIs(t, err, outbox.ErrNoMessage)
	require.NoError(t, q.Cancel(t.Context(), "a", "1"))
	require.ErrorIs(t, q.Cancel(t.Context(), "a", "1"), outbox.ErrNoMessage)
	r, err = q.LookupID(t.Context(), m.ID)
	require.NoError(t, err)
	require.Equal(t, outbox.Canceled, r.State)
	_, err = q.Lookup(t.Context(), "a", "1")
	require.ErrorIs(t, err, outbox.ErrNoMessage)
}
