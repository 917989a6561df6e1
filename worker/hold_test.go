package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

// A broker that need not have the delayed exchange: MySQL holds the messages, two workers share them.
func TestHold_MessagesFireOnTimeWithoutAnythingOfTheBroker(t *testing.T) {
	t.Parallel()
	const messages = 400
	url := devtest.Plain(t)
	p := newPlaceOn(t, url, devtest.NamespaceOn(t, url, topic))
	cfg := worker.Config{Strategy: rabbitmq.Hold, ReconcileSchedule: "@every 1s"}
	w, _ := p.start(t, cfg, map[string]worker.Effect{topic: written})
	p.start(t, cfg, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, dueFrom(messages, 2*time.Second, 4*time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE published_at > '2000-01-01' AND published_at < due_at`), "none was published ahead")
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE repairs > 0`))
	middle := p.count(t, `SELECT late FROM (SELECT TIMESTAMPDIFF(MICROSECOND, due_at, finished_at) AS late, ROW_NUMBER() OVER (ORDER BY finished_at - due_at) AS nth
		FROM outbox_messages) AS m WHERE nth = ?`, messages/2)
	require.Less(t, time.Duration(middle)*time.Microsecond, 200*time.Millisecond)
	state := w.Readiness(t.Context()).Publisher
	require.Equal(t, "hold", state.Strategy)
	require.Equal(t, "it was asked for", state.Why)
}

// Before it has asked the broker, a worker must not take what is published ahead for left over.
func TestAuto_TheStartOfAWorkerPublishesNothingAgain(t *testing.T) {
	t.Parallel()
	const messages = 100
	p := newPlace(t, topic)
	w, stop := p.start(t, onlyEpoch(), map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, dueFrom(messages, 5*time.Minute, time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
	p.exec(t, `UPDATE outbox_meta SET rearms = 2, rearmed_at = NULL WHERE id = ?`, 1) // a pass later
	require.NoError(t, stop())
	w, stop = p.start(t, onlyEpoch(), map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	require.NoError(t, stop())
	require.Equal(t, messages, p.inState(t, outbox.Published))
	require.Equal(t, messages, p.count(t, `SELECT SUM(publishes) FROM outbox_messages`))
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_reconcile_runs WHERE kind = 'rearm' AND report LIKE '%ahead%'`))
}

// The plugin is disabled while the broker holds messages for their time, and the broker lives on: the worker moves over, and
// they fire on time.
func TestHold_TakesOverWhenThePluginIsDisabled(t *testing.T) {
	t.Parallel()
	const messages = 300
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	p := newPlaceOn(t, broker.URL(), "moves")
	w, _ := p.start(t, onlyEpoch(), map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	require.Equal(t, "plugin", w.Readiness(t.Context()).Publisher.Strategy)
	// The next look at the exchange is 15 s away at most.
	p.enqueue(t, dueFrom(messages, 25*time.Second, 5*time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
	require.NoError(t, broker.SetPlugin(t.Context(), false))
	require.Eventually(t, func() bool {
		return ready(t, w)() && w.Readiness(t.Context()).Publisher.Strategy == "hold"
	}, patience, tick)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
	require.Zero(t, repaired(t, w, "overdue"))
	late := p.count(t, `SELECT MAX(TIMESTAMPDIFF(MICROSECOND, due_at, finished_at)) FROM outbox_messages`)
	require.Less(t, time.Duration(late)*time.Microsecond, 2*time.Second)
}
