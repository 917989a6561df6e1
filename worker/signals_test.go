package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

// These are the rows of the table in docs/operations.md, "Which signals move": what goes wrong is seen in what workers export.

// sampled is a sample of a worker's metrics; ok says that it is there.
func sampled(t *testing.T, w *worker.Worker, sample string) (value float64, ok bool) {
	t.Helper()
	for line := range strings.Lines(get(t, w.Routes(), "/metrics", "").Body.String()) {
		if rest, found := strings.CutPrefix(line, sample+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			require.NoError(t, err)
			return value, true
		}
	}
	return 0, false
}

func requireSignal(t *testing.T, w *worker.Worker, sample string, want float64) {
	t.Helper()
	var got float64
	require.Eventually(t, func() bool {
		var ok bool
		got, ok = sampled(t, w, sample)
		return ok && got == want
	}, patience, tick, "%s is not %v", sample, want)
}

// onlooker is a worker that does not run: it shows the ledger, and asks it when it is first asked.
func (p *place) onlooker(t *testing.T) *worker.Worker {
	t.Helper()
	w, err := worker.New(p.db, "amqp://127.0.0.1:1/", map[string]worker.Effect{topic: written}, worker.Config{Namespace: p.namespace})
	require.NoError(t, err)
	return w
}

func oldest(state outbox.State) string {
	return fmt.Sprintf("duebox_oldest_due_seconds{state=%q}", string(state))
}

func messages(state outbox.State) string {
	return fmt.Sprintf("duebox_messages{state=%q,topic=%q}", string(state), topic)
}

func TestSignals_TheRelayIsDead(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://127.0.0.1:1/", "nobody")
	quiet := p.onlooker(t)
	requireSignal(t, quiet, "duebox_ledger_up", 1)
	requireSignal(t, quiet, messages(outbox.Scheduled), 0)
	requireSignal(t, quiet, oldest(outbox.Scheduled), 0)

	p.enqueue(t, outbox.Message{Delay: time.Hour})
	p.enqueue(t, repeat(2)...)
	p.exec(t, `UPDATE outbox_messages SET available_at = available_at - INTERVAL 1 MINUTE,
		due_at = due_at - INTERVAL 1 MINUTE, created_at = created_at - INTERVAL 1 MINUTE`)
	w := p.onlooker(t)
	requireSignal(t, w, messages(outbox.Scheduled), 3)
	late, ok := sampled(t, w, oldest(outbox.Scheduled))
	require.True(t, ok)
	require.InDelta(t, 60, late, 30)
	requireSignal(t, w, oldest(outbox.Published), 0)
	requireSignal(t, w, "duebox_consumers", 0)
}

// Whoever may enqueue may make up topics, and each series of a metric is kept for long.
func TestSignals_MadeUpTopicsAreCountedTogether(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://127.0.0.1:1/", "nobody")
	const madeUp = 250
	batch := []outbox.Message{{Topic: "mail", Delay: time.Hour}, {Topic: "mail", Delay: time.Hour}, {Delay: time.Hour}}
	for i := range madeUp {
		batch = append(batch, outbox.Message{Topic: fmt.Sprintf("a-%03d", i), Delay: time.Hour})
	}
	p.enqueue(t, batch...)
	w := p.onlooker(t)
	requireSignal(t, w, messages(outbox.Scheduled), 1) // the worker's own, whatever there is
	requireSignal(t, w, `duebox_messages{state="scheduled",topic="mail"}`, 2)
	requireSignal(t, w, `duebox_messages{state="scheduled",topic="(others)"}`, madeUp-99)
	p.exec(t, `UPDATE outbox_messages SET topic = 0xFF22 WHERE topic = 'mail'`) // past every rule
	require.Equal(t, http.StatusOK, get(t, p.onlooker(t).Routes(), "/metrics", "").Code)
	require.Equal(t, 102, strings.Count(get(t, w.Routes(), "/metrics", "").Body.String(), `duebox_messages{state="scheduled",`))
}

func TestSignals_TheBrokerIsDown(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://127.0.0.1:1/", devtest.Namespace(t, topic))
	w, _ := p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	requireSignal(t, w, `duebox_broker_connected{role="publisher"}`, 0)
	requireSignal(t, w, `duebox_consumers`, 0)
	requireSignal(t, w, `duebox_consumers_wanted`, 2)
	_, ok := sampled(t, w, `duebox_queue_consumers{topic="test"}`)
	require.False(t, ok, "nothing is known of the queue")
}

func TestSignals_WorkersAreTooFew(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	release := make(chan struct{})
	w, _ := p.start(t, worker.Config{Strategy: rabbitmq.Hold, Workers: 1, Prefetch: 1}, map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return written(ctx, tx, d)
	}})
	defer close(release)
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, repeat(5)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == 4 }, patience, tick, "one is in its effect, and locked")
	p.exec(t, `UPDATE outbox_messages SET available_at = available_at - INTERVAL 1 MINUTE,
		due_at = due_at - INTERVAL 1 MINUTE, created_at = created_at - INTERVAL 1 MINUTE WHERE state = 'published'`)
	seen := p.onlooker(t)
	requireSignal(t, seen, messages(outbox.Published), 4)
	late, ok := sampled(t, seen, oldest(outbox.Published))
	require.True(t, ok)
	require.InDelta(t, 60, late, 30)
	requireSignal(t, w, `duebox_broker_connected{role="publisher"}`, 1)
	requireSignal(t, w, `duebox_published_total{outcome="confirmed"}`, 5)
}

func TestSignals_AnEffectNeverSucceeds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{MaxAttempts: 3, Backoff: func(int) time.Duration { return time.Millisecond }},
		map[string]worker.Effect{topic: func(context.Context, *gorm.DB, outbox.Delivery) error { return errors.New("no") }})
	p.enqueue(t, repeat(1)...)
	requireSignal(t, w, `duebox_deliveries_total{outcome="retry",topic="test"}`, 2)
	requireSignal(t, w, `duebox_deliveries_total{outcome="dead",topic="test"}`, 1)
	requireSignal(t, w, `duebox_dead_total{reason="attempts"}`, 1)
	requireSignal(t, p.onlooker(t), messages(outbox.Dead), 1)
}

// A session's time that is set stands still, which is as wrong as an hour ahead.
func TestSignals_TheClockIsOff(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	p := newPlaceWith(t, dsn, "amqp://127.0.0.1:1/", "nobody")
	offset, ok := sampled(t, p.onlooker(t), "duebox_clock_offset_seconds")
	require.False(t, ok, "not known before the clock was read: %v", offset)
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	db, err := gorm.Open(mysql.Open(fmt.Sprintf("%s%s@@timestamp=%d", dsn, separator, time.Now().Add(time.Hour).Unix())), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	p.db, p.pool = db, pool
	w, _ := p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool {
		offset, ok = sampled(t, w, "duebox_clock_offset_seconds")
		return ok
	}, patience, tick)
	require.InDelta(t, time.Hour.Seconds(), offset, patience.Seconds())
}

func TestSignals_TheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://127.0.0.1:1/", "nobody")
	w := p.onlooker(t)
	require.NoError(t, p.pool.Close())
	requireSignal(t, w, "duebox_ledger_up", 0)
	_, ok := sampled(t, w, messages(outbox.Scheduled))
	require.False(t, ok, "what is not known is not shown")
}
