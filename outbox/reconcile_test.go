package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestReconciler_SchedulesAgainWhatStayedWithoutEffect(t *testing.T) {
	t.Parallel()
	repaired := map[string]int{}
	l := newLedger(t, outbox.StoreConfig{Observer: outbox.Observer{Repaired: func(why string, n int) { repaired[why] += n }}})
	rec, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{})
	require.NoError(t, err)
	overdue := l.enqueue(t, outbox.Message{Key: "overdue"})
	inGrace := l.enqueue(t, outbox.Message{Key: "in grace"})
	l.exec(t, "UPDATE outbox_messages SET state = 'published', publishes = 1, available_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE id = ?", overdue.ID)
	l.exec(t, "UPDATE outbox_messages SET state = 'published', publishes = 1, available_at = UTC_TIMESTAMP(6) + INTERVAL 30 SECOND WHERE id = ?", inGrace.ID)

	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 1, report.Of(outbox.FoundOverdue).Mended)
	require.Equal(t, map[string]int{"overdue": 1}, repaired)
	require.Equal(t, outbox.Scheduled, l.record(t, overdue.ID).State)
	require.Equal(t, outbox.Published, l.record(t, inGrace.ID).State)

	for range 9 {
		l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = UTC_TIMESTAMP(6) WHERE id = ?", overdue.ID)
		_, err = rec.Run(t.Context(), outbox.Scope{})
		require.NoError(t, err)
	}
	r := l.record(t, overdue.ID)
	require.Equal(t, 10, r.Repairs)
	require.Equal(t, 1, l.count(t, "id = ? AND available_at > UTC_TIMESTAMP(6) + INTERVAL 5 MINUTE", overdue.ID), "the pause doubles")
	l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = UTC_TIMESTAMP(6) WHERE id = ?", overdue.ID)
	report, err = rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, outbox.Finding{Found: 1, IDs: []string{"1"}}, report.Of(outbox.FoundHopeless))
	require.Zero(t, report.Of(outbox.FoundOverdue).Mended)
	require.Equal(t, outbox.Dead, l.record(t, overdue.ID).State)
}

var errAway = errors.New("broker away")

func TestReconciler_LeavesWhatStillWaitsInItsQueue(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	depth := map[string][2]int{"slow": {5, 2}, "nobody": {0, 0}, "drained": {0, 1}}
	rec, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{Depth: func(_ context.Context, topic string) (int, int, error) {
		if d, ok := depth[topic]; ok {
			return d[0], d[1], nil
		}
		if topic == "no.queue" {
			return 0, 0, fmt.Errorf("depth: %w", outbox.ErrNoQueue)
		}
		return 0, 0, errAway
	}})
	require.NoError(t, err)
	ids := map[string]int64{}
	for _, topic := range []string{"slow", "nobody", "drained", "no.queue"} {
		ids[topic] = l.enqueue(t, outbox.Message{Topic: topic}).ID
	}
	l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = UTC_TIMESTAMP(6)")
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 2, report.Of(outbox.FoundOverdue).Mended)
	require.Equal(t, 2, report.Of(outbox.FoundLate).Found)
	require.Equal(t, outbox.Scheduled, l.record(t, ids["drained"]).State)
	require.Equal(t, outbox.Scheduled, l.record(t, ids["no.queue"]).State)

	unasked := l.enqueue(t, outbox.Message{Topic: "unknown"})
	l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = UTC_TIMESTAMP(6) WHERE id = ?", unasked.ID)
	_, err = rec.Run(t.Context(), outbox.Scope{})
	require.ErrorIs(t, err, errAway, "a broker that cannot be asked is no finding")
	require.Equal(t, outbox.Published, l.record(t, unasked.ID).State)
}

func TestReconciler_RearmsWhatAnEarlierBrokerLifeHeld(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{})
	require.NoError(t, err)
	broker := newBroker(t)
	stop := l.start(t, broker, outbox.RelayConfig{Poll: quick, Horizon: 2 * time.Hour})
	const messages = 500
	for i := range messages {
		l.enqueue(t, outbox.Message{Key: fmt.Sprint(i), Delay: time.Hour})
	}
	past := l.enqueue(t, outbox.Message{Key: "came due meanwhile"})
	eventually(t, "all published", func() bool { return l.count(t, "state = 'published'") == messages+1 })
	stop()
	report, _, err := rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Of(outbox.FoundEpoch).Mended, "the broker lives on")

	epoch, err := l.Epoch(t.Context())
	require.NoError(t, err)
	require.Zero(t, epoch)
	for range 2 { // two processes see the same restart
		raised, err := l.Raise(t.Context(), epoch, true)
		require.NoError(t, err)
		require.EqualValues(t, 1, raised)
	}
	broker.Lose(1)
	report, _, err = rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Equal(t, messages+1, report.Of(outbox.FoundEpoch).Mended)
	require.Equal(t, messages, l.count(t, "state = 'scheduled' AND available_at = due_at AND repairs = 0"))
	require.Equal(t, 1, l.count(t, "id = ? AND available_at <= UTC_TIMESTAMP(6)", past.ID), "at once, not after the grace period")

	l.start(t, broker, outbox.RelayConfig{Poll: quick, Horizon: 2 * time.Hour})
	eventually(t, "all published again", func() bool { return l.count(t, "state = 'published' AND broker_epoch = 1") == messages+1 })
	report, _, err = rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Of(outbox.FoundEpoch).Mended, "once")
}

func TestRelay_AConfirmOfAnEndedBrokerLifeSettlesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t) // its connection still believes in epoch 0
	_, err := l.Raise(t.Context(), 0, false)
	require.NoError(t, err)
	m := l.enqueue(t, outbox.Message{Delay: time.Minute})
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	eventually(t, "published on the old connection", func() bool { return len(broker.Published()) > 0 })
	require.Equal(t, outbox.Scheduled, l.record(t, m.ID).State)
	broker.Lose(1)
	eventually(t, "published on the new one", func() bool { return l.record(t, m.ID).State == outbox.Published })
}

func TestReconciler_OneAtATime(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	inside, leave := make(chan struct{}), make(chan struct{})
	slow, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{Depth: func(context.Context, string) (int, int, error) {
		close(inside)
		<-leave
		return 0, 1, nil
	}})
	require.NoError(t, err)
	other, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{})
	require.NoError(t, err)
	l.enqueue(t, outbox.Message{})
	l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = UTC_TIMESTAMP(6)")
	done := make(chan outbox.Report, 1)
	go func() {
		report, err := slow.Run(context.Background(), outbox.Scope{})
		if err != nil {
			t.Errorf("slow pass: %v", err)
		}
		done <- report
	}()
	select {
	case <-inside:
	case report := <-done:
		require.FailNow(t, "the slow pass has ended", "%+v", report)
	}
	report, err := other.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.True(t, report.Skipped)
	close(leave)
	require.Equal(t, 1, (<-done).Of(outbox.FoundOverdue).Mended)
	report, err = other.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.False(t, report.Skipped)
}

func TestUnrouted_IsKeptAndScheduledAgain(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	l := newLedger(t, outbox.StoreConfig{Observer: outbox.Observer{
		Repaired: func(why string, n int) { seen["repaired "+why] += n },
		Died:     func(why string, n int) { seen["died "+why] += n },
	}})
	m := l.enqueue(t, outbox.Message{Key: "1"})
	l.exec(t, "UPDATE outbox_messages SET state = 'published', publishes = 1")
	d := l.delivery(t, m.ID)
	for n := 1; n <= 10; n++ {
		require.NoError(t, l.Unrouted(t.Context(), d))
		r := l.record(t, m.ID)
		require.Equal(t, n, r.Repairs)
		require.Equal(t, outbox.Scheduled, r.State)
		require.NoError(t, l.Unrouted(t.Context(), d), "a copy")
		require.Equal(t, n, l.record(t, m.ID).Repairs, "does not count")
		l.exec(t, "UPDATE outbox_messages SET state = 'published'")
	}
	require.NoError(t, l.Unrouted(t.Context(), d))
	require.Equal(t, outbox.Dead, l.record(t, m.ID).State)
	require.Equal(t, map[string]int{"repaired unrouted": 10, "died unrouted": 1}, seen)
	d.Store = "other"
	require.NoError(t, l.Unrouted(t.Context(), d))
	require.Equal(t, 21, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted WHERE reason = 'unrouted'"))
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted WHERE reason = 'foreign'"))
}

func TestPurge_DeletesWhatHasBeenFinishedForLong(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{})
	require.NoError(t, err)
	for i, state := range []string{"scheduled", "published", "done", "canceled", "dead"} {
		l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
			SELECT seq % 16, 'old', 'a/b', '', ?, '2020-01-01', IF(? = 'published', '2099-01-01', UTC_TIMESTAMP(6) - INTERVAL 1 SECOND), '2020-01-01'
			FROM `+numbers(1200*(i+1)), state, state)
		l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
			SELECT seq % 16, 'new', 'a/b', '', ?, '2020-01-01', UTC_TIMESTAMP(6) + INTERVAL 1 DAY, '2020-01-01' FROM `+numbers(50), state)
	}
	l.exec(t, "INSERT INTO outbox_unrouted (reason, kept_at) VALUES ('old', UTC_TIMESTAMP(6) - INTERVAL 8 DAY), ('new', UTC_TIMESTAMP(6))")
	l.exec(t, `INSERT INTO outbox_reconcile_runs (kind, state, requested_at) VALUES ('pass', 'completed', UTC_TIMESTAMP(6) - INTERVAL 8 DAY)`)
	l.exec(t, "INSERT INTO outbox_relays (owner, seen_at) VALUES ('old', UTC_TIMESTAMP(6) - INTERVAL 2 HOUR), ('new', UTC_TIMESTAMP(6))")
	rows := l.count(t, "TRUE")
	report, err := rec.Purge(t.Context(), true)
	require.NoError(t, err)
	const old = 1200*3 + 1200*4 + 3 // with a kept delivery, the record of a run and a relay
	require.Equal(t, old, report.Purged)
	require.Equal(t, rows, l.count(t, "TRUE"), "a dry run counts")
	require.Equal(t, 2, l.scalar(t, "SELECT COUNT(*) FROM outbox_relays"))
	report, err = rec.Purge(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, old, report.Purged)
	require.Zero(t, l.count(t, "topic = 'old' AND state IN ('done', 'canceled')"))
	require.Equal(t, 1200*(1+2+5), l.count(t, "topic = 'old'"), "live rows are never purged")
	require.Equal(t, 250, l.count(t, "topic = 'new'"))
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted"))
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM outbox_relays"))
	require.Equal(t, 2, l.scalar(t, "SELECT COUNT(*) FROM outbox_reconcile_runs"), "its own")
}

func TestKeep_CutsWhatTheServerWouldNotTake(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	require.NoError(t, l.Keep(t.Context(), outbox.Stray{
		Reason: "malformed", Detail: "huge", Headers: make([]byte, 20<<20), Payload: make([]byte, 20<<20),
	}))
	require.Equal(t, 1<<20, l.scalar(t, "SELECT LENGTH(payload) FROM outbox_unrouted"))
	require.Equal(t, 1, l.scalar(t, "SELECT detail LIKE 'huge (the payload%20971520 bytes)%' FROM outbox_unrouted"))
}
