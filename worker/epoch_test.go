package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// longGrace and the schedule of onlyEpoch leave the epoch as the one thing that can help within a test.
const longGrace = 5 * time.Minute

func onlyEpoch() worker.Config {
	return worker.Config{Grace: longGrace, ReconcileSchedule: "@yearly", AuditSchedule: "@yearly"}
}

// dueFrom are n messages, the first due after the pause, the last after spread more.
func dueFrom(n int, pause, spread time.Duration) []outbox.Message {
	all := make([]outbox.Message, n)
	for i := range all {
		all[i] = outbox.Message{Topic: topic, Delay: pause + spread*time.Duration(i)/time.Duration(n)}
	}
	return all
}

// repaired reads how many messages were scheduled again for a reason.
func repaired(t *testing.T, w *worker.Worker, reason string) int {
	t.Helper()
	return metric(t, w, fmt.Sprintf("duebox_repairs_total{reason=%q}", reason))
}

func metric(t *testing.T, w *worker.Worker, name string) int {
	t.Helper()
	for line := range strings.Lines(get(t, w.Routes(), "/metrics", "").Body.String()) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			var n int
			_, err := fmt.Sscan(text, &n)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no metric", name)
	return 0
}

// TestEpoch_MessagesFireOnTimeAfterTheBrokerHasLostThem: what is due after the broker is back fires as if nothing had been, what
// came due meanwhile fires at once.
func TestEpoch_MessagesFireOnTimeAfterTheBrokerHasLostThem(t *testing.T) {
	t.Parallel()
	type loss struct {
		name string
		lose func(ctx context.Context, broker *devenv.RabbitMQ) error
	}
	for _, losses := range [][]loss{
		{
			{"clean restart", func(ctx context.Context, broker *devenv.RabbitMQ) error { return broker.Stop(ctx) }},
			{"kill -9", func(_ context.Context, broker *devenv.RabbitMQ) error { return broker.Kill() }},
		},
		{
			{"wiped data directory", func(_ context.Context, broker *devenv.RabbitMQ) error { return broker.Wipe() }},
			{"changed node name", func(_ context.Context, broker *devenv.RabbitMQ) error { return broker.Rename() }},
		},
	} {
		t.Run(losses[0].name+", "+losses[1].name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
			outage := time.Since(began)
			p := newPlaceOn(t, broker.URL(), "lost")
			w, _ := p.start(t, onlyEpoch(), map[string]worker.Effect{topic: written})
			require.Eventually(t, ready(t, w), patience, tick)
			for i, l := range losses {
				requireOnTime(t, p, w, broker, outage, 300*i, l.name, func() error { return l.lose(t.Context(), broker) })
			}
		})
	}
}

// requireOnTime loses the broker under 300 messages, after the earlier ones had their effect. An outage takes about as long as is
// given, or half as long again.
func requireOnTime(t *testing.T, p *place, w *worker.Worker, broker *devenv.RabbitMQ, outage time.Duration, earlier int, name string, lose func() error) {
	t.Helper()
	const (
		messages  = 300
		reconnect = 8 * time.Second         // a pause between attempts is up to 5 s
		atOnce    = 2 * time.Second         // after the worker is ready again
		onTime    = 1500 * time.Millisecond // whatever else the machine does
	)
	// Re-arming rests for 30 s after the last time, which is not what is looked at here.
	p.exec(t, `UPDATE outbox_meta SET rearmed_at = NULL WHERE id = ?`, 1)
	epoch := w.Readiness(t.Context()).Publisher.Epoch
	p.enqueue(t, dueFrom(messages, 1500*time.Millisecond, outage*3/2+7*time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Scheduled) == 0 }, patience, tick)
	rearmed := repaired(t, w, "epoch")
	devtest.Settle(t, broker)
	require.NoError(t, lose())
	require.NoError(t, broker.Start(t.Context()))
	back := p.now(t)
	require.Eventually(t, func() bool { return ready(t, w)() && w.Readiness(t.Context()).Publisher.Epoch == epoch+1 }, patience, tick)
	again := p.now(t)
	require.Less(t, again.Sub(back), reconnect)
	waiting := p.inState(t, outbox.Scheduled) + p.inState(t, outbox.Published)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == earlier+messages }, patience, tick)
	p.requireOnce(t, earlier+messages)

	// By now the broker has been there for longer than any message was ahead: what it lost came from the database.
	late := `SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, GREATEST(m.due_at, ?), e.effected_at)), 0)
		FROM effects e JOIN outbox_messages m ON m.id = e.message_id WHERE m.due_at `
	meanwhile := p.count(t, `SELECT COUNT(*) FROM outbox_messages m JOIN effects e ON e.message_id = m.id WHERE m.due_at < ? AND e.effected_at > ?`, sqlTime(again), sqlTime(back))
	ahead := p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE due_at >= ?`, sqlTime(again.Add(atOnce)))
	require.Greater(t, meanwhile, 20, "some came due during the outage")
	require.Greater(t, ahead, 20, "some are due after it")
	waited := time.Duration(p.count(t, late+`< ?`, sqlTime(again), sqlTime(again.Add(atOnce)))) * time.Microsecond
	lateness := time.Duration(p.count(t, late+`>= ?`, sqlTime(again), sqlTime(again.Add(atOnce)))) * time.Microsecond
	t.Logf("%s: %d of %d waited when the worker was ready again, %v after the broker; %d that came due meanwhile had their effect within %v of that, %d that were ahead within %v of their due time",
		name, waiting, messages, again.Sub(back), meanwhile, waited, ahead, lateness)
	require.Less(t, waited, atOnce+onTime)
	require.Less(t, lateness, onTime)
	require.Positive(t, repaired(t, w, "epoch")-rearmed)
	require.Zero(t, repaired(t, w, "overdue"), "only the epoch has helped")
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_unrouted`), "everything has found its queue, whoever was back first")
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE repairs > 0`))
}

func (p *place) now(t *testing.T) time.Time {
	t.Helper()
	now, err := p.store.Now(t.Context())
	require.NoError(t, err)
	return now
}

func sqlTime(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000000") }

// A network that fails is no broker that lost anything.
func TestEpoch_LostConnectionsRepublishNothing(t *testing.T) {
	t.Parallel()
	const messages, cuts = 300, 10
	network, url := metered(t, devtest.AMQP(t))
	p := newPlaceOn(t, url, devtest.Namespace(t, topic))
	w, _ := p.start(t, onlyEpoch(), map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, dueFrom(messages, 2*time.Second, 8*time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Scheduled) == 0 }, patience, tick)
	lost := func(role string) int {
		return metric(t, w, fmt.Sprintf("duebox_broker_disconnects_total{role=%q}", role))
	}
	for cut := 1; cut <= cuts; cut++ {
		network.cut()
		require.Eventually(t, func() bool { return lost("publisher") == cut && lost("consumer") == cut && ready(t, w)() }, patience, tick)
	}
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
	require.Equal(t, int64(1), w.Readiness(t.Context()).Publisher.Epoch)
	require.Equal(t, 1, p.count(t, `SELECT broker_epoch FROM outbox_meta`))
	// What took effect before it was settled counts as never published.
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE publishes > 1`))
	for _, reason := range []string{"epoch", "overdue", "unrouted"} {
		require.Zero(t, repaired(t, w, reason), reason)
	}
}

// TestScenario03_MessagesSurviveBindingsThatAreRemoved: confirmed, then a binding on their way is removed before the due time and
// restored after it.
func TestScenario03_MessagesSurviveBindingsThatAreRemoved(t *testing.T) {
	t.Parallel()
	const messages = 50
	for name, binding := range map[string]struct {
		reason       string // of the repair
		unbind, bind func(ch *amqp.Channel, namespace string) error
	}{
		"delay to deliver": {
			"overdue",
			func(ch *amqp.Channel, ns string) error {
				return ch.ExchangeUnbind(ns+".deliver", "#", ns+".delay", false, nil)
			},
			func(ch *amqp.Channel, ns string) error {
				return ch.ExchangeBind(ns+".deliver", "#", ns+".delay", false, nil)
			},
		},
		"deliver to the work queue": {
			"unrouted",
			func(ch *amqp.Channel, ns string) error {
				return ch.QueueUnbind(ns+".work."+topic, topic, ns+".deliver", nil)
			},
			func(ch *amqp.Channel, ns string) error {
				return ch.QueueBind(ns+".work."+topic, topic, ns+".deliver", false, nil)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, topic)
			w, _ := p.start(t, worker.Config{Grace: 2 * time.Second, ReconcileSchedule: "@every 1s"}, map[string]worker.Effect{topic: written})
			require.Eventually(t, ready(t, w), patience, tick)
			p.enqueue(t, dueFrom(messages, 2*time.Second, time.Second)...)
			require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
			ch, err := devtest.Dial(t, p.amqpURL).Channel()
			require.NoError(t, err)
			// The worker makes bindings again by itself, sooner or later: they are removed each time, until all are due.
			require.Eventually(t, func() bool {
				require.NoError(t, binding.unbind(ch, p.namespace))
				return p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE due_at > UTC_TIMESTAMP(6)`) == 0
			}, patience, time.Millisecond)
			require.NoError(t, binding.bind(ch, p.namespace))
			require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
			p.requireOnce(t, messages)
			require.Positive(t, repaired(t, w, binding.reason))
			require.Equal(t, 1, p.count(t, `SELECT broker_epoch FROM outbox_meta`), "a binding is no loss of the exchange")
		})
	}
}

// TestScenario06_ExchangeThatNeverFiresIsRepaired: the exchange accepts and confirms, and is stuck.
func TestScenario06_ExchangeThatNeverFiresIsRepaired(t *testing.T) {
	t.Parallel()
	const (
		messages = 200
		grace    = 5 * time.Second
	)
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeStandIn, Stuck: true})
	p := newPlaceOn(t, broker.URL(), "stuck")
	w, _ := p.start(t, worker.Config{Grace: grace, ReconcileSchedule: "@every 1s"}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, dueFrom(messages, 3*time.Second, 2*time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
	shown := false
	require.Eventually(t, func() bool {
		shown = shown || w.Readiness(t.Context()).Reconcile.Found[outbox.FoundOverdue] > 0
		return shown && p.inState(t, outbox.Done) == messages
	}, patience, tick, "health shows it, and it is mended")
	lateness := time.Duration(p.count(t, `SELECT MAX(TIMESTAMPDIFF(MICROSECOND, m.due_at, e.effected_at))
		FROM effects e JOIN outbox_messages m ON m.id = e.message_id`)) * time.Microsecond
	t.Logf("largest lateness %v", lateness)
	require.Less(t, lateness, 2*grace+time.Second, "overdue after a grace, repaired within another one, and fired at once")
	require.Equal(t, messages, repaired(t, w, "overdue"), "each once")
	require.Equal(t, messages, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE repairs = 1 AND publishes >= 1`))

	// What was stuck is free, and comes as well.
	require.NoError(t, broker.SetStuck(t.Context(), false))
	require.Eventually(t, func() bool {
		return metric(t, w, fmt.Sprintf(`duebox_deliveries_total{outcome="duplicate",topic=%q}`, topic)) == messages
	}, patience, tick)
	p.requireOnce(t, messages)
}
