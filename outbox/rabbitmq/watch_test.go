package rabbitmq_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// watched is a consumer that asks its queues often, behind a network that never tells it that it was ended.
type watched struct {
	*rabbitmq.Consumer

	network   *frames
	namespace string
	queueType rabbitmq.QueueType
	logged    *syncBuffer
	stop      func() error
}

func (w *watched) queue() string { return w.namespace + ".work." + topic }

func watch(t *testing.T, queueType rabbitmq.QueueType, h rabbitmq.Handlers, cfg rabbitmq.ConsumerConfig, every time.Duration) *watched {
	t.Helper()
	network, url := throughFrames(t, devtest.AMQP(t))
	w := &watched{network: network, namespace: devtest.Namespace(t, topic), queueType: queueType, logged: &syncBuffer{}}
	b := at(t, url, rabbitmq.Config{
		Namespace: w.namespace, QueueType: queueType, Log: slog.New(slog.NewJSONHandler(w.logged, nil)),
	})
	var err error
	w.Consumer, err = rabbitmq.NewConsumer(b, []string{topic}, h, cfg)
	require.NoError(t, err)
	w.CheckEvery(every)
	w.stop = run(t, w)
	requireConsuming(t, w.Consumer)
	return w
}

// direct is the same namespace past the network that loses things.
func (w *watched) direct(t *testing.T) *rabbitmq.Broker {
	t.Helper()
	return at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: w.namespace, QueueType: w.queueType})
}

// put publishes n messages that are due, ids from first on.
func (w *watched) put(t *testing.T, first int64, n int) {
	t.Helper()
	requireConfirmed(t, publisher(t, w.direct(t), rabbitmq.PublisherConfig{}).Publish(t.Context(), publications(first, n, time.Now())))
}

func TestConsumer_ComesBackAfterItsQueueWasDeletedAndNobodyTold(t *testing.T) {
	t.Parallel()
	in := &inbox{}
	w := watch(t, rabbitmq.Quorum, in.handlers(), rabbitmq.ConsumerConfig{}, 100*time.Millisecond)
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	for i, queue := range []string{w.queue(), w.namespace + ".unrouted"} {
		_, err = ch.QueueDelete(queue, false, false, false)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return w.network.lost() == i+1 }, patience, tick, "the broker has told, and it did not arrive")
		require.Eventually(t, func() bool {
			q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			if err != nil {
				ch, err = devtest.Dial(t, devtest.AMQP(t)).Channel()
				require.NoError(t, err)
			}
			return q.Consumers == 1
		}, patience, tick)
	}
	require.Contains(t, w.logged.String(), "the queue is gone")
	w.put(t, 1, 10)
	require.Eventually(t, func() bool { return len(in.ids()) == 10 }, patience, tick)
	requireDepth(t, w.direct(t), 0, 1)
}

// The queue is there and nobody consumes it.
func TestConsumer_ComesBackWhenTheBrokerHasLostIt(t *testing.T) {
	t.Parallel()
	for _, queueType := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
		t.Run(string(queueType), func(t *testing.T) {
			t.Parallel()
			in := &inbox{}
			w := watch(t, queueType, in.handlers(), rabbitmq.ConsumerConfig{}, 100*time.Millisecond)
			lost := w.network.tag(w.queue())
			w.network.lose(t, w.queue())
			requireDepth(t, w.direct(t), 0, 1)
			require.Eventually(t, func() bool { return w.network.tag(w.queue()) != lost }, patience, tick)
			w.put(t, 1, 10)
			require.Eventually(t, func() bool { return len(in.ids()) == 10 }, patience, tick)
			require.Contains(t, w.logged.String(), "has no consumer")
			requireDepth(t, w.direct(t), 0, 1)
		})
	}
}

// What workers hold from a consumer that was lost is given again, and they acknowledge nothing of it. (A classic queue, because a quorum
// queue counts a consumer until its deliveries are acknowledged.)
func TestConsumer_GivesBackWhatWorkersHoldWhenTheBrokerHasLostIt(t *testing.T) {
	t.Parallel()
	in := &inbox{}
	h := in.handlers()
	begun, goOn := make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(goOn) })
	defer finish()
	var calls atomic.Int32
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		if calls.Add(1) == 1 {
			close(begun)
			<-goOn
		}
		return in.handle(ctx, d)
	}
	w := watch(t, rabbitmq.Classic, h, rabbitmq.ConsumerConfig{Workers: 2}, 100*time.Millisecond)
	w.put(t, 1, 1)
	<-begun
	w.network.lose(t, w.queue())
	w.put(t, 2, 10)
	require.Eventually(t, func() bool { return len(in.ids()) == 11 }, patience, tick, "by the other worker")
	finish()
	require.Eventually(t, func() bool { return in.ids()[1] == 2 }, patience, tick)
	requireDepth(t, w.direct(t), 0, 1)
	require.NoError(t, w.stop())
	requireDepth(t, w.direct(t), 0, 0)
}

// Others consume the queue, so that their number says nothing.
func TestConsumer_ComesBackWhenOthersConsumeAndItGetsNothing(t *testing.T) {
	t.Parallel()
	in := &inbox{}
	w := watch(t, rabbitmq.Quorum, in.handlers(), rabbitmq.ConsumerConfig{}, 100*time.Millisecond)
	other, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	require.NoError(t, other.Qos(1, 0, false))
	taken, err := other.Consume(w.queue(), "other", false, false, false, false, nil)
	require.NoError(t, err)
	w.network.lose(t, w.queue())
	requireDepth(t, w.direct(t), 0, 1)
	w.put(t, 1, 10)
	<-taken // and never acknowledged
	require.Eventually(t, func() bool { return len(in.ids()) == 9 }, patience, tick)
	require.Contains(t, w.logged.String(), "gives this consumer none")
	requireDepth(t, w.direct(t), 0, 2)
}

// Ready messages and no deliveries are no fault while the workers are busy, and neither is a queue that is idle.
func TestConsumer_IsNotStartedAnewWithoutReason(t *testing.T) {
	t.Parallel()
	in := &inbox{}
	h := in.handlers()
	goOn := make(chan struct{})
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		<-goOn
		return in.handle(ctx, d)
	}
	const every = 250 * time.Millisecond // longer than a delivery takes on a busy machine
	w := watch(t, rabbitmq.Quorum, h, rabbitmq.ConsumerConfig{Workers: 1, Prefetch: 1}, every)
	work, unrouted := w.network.tag(w.queue()), w.network.tag(w.namespace+".unrouted")
	w.put(t, 1, 100)
	requireDepth(t, w.direct(t), 99, 1)
	same := func() bool {
		return w.network.tag(w.queue()) == work && w.network.tag(w.namespace+".unrouted") == unrouted
	}
	require.Never(t, func() bool { return !same() }, 10*every, tick, "busy")
	close(goOn)
	require.Eventually(t, func() bool { return len(in.deliveries()) == 100 }, patience, tick)
	require.Never(t, func() bool { return !same() }, 10*every, tick, "idle")
	for _, d := range in.deliveries() {
		require.Zero(t, d.Redeliveries)
	}
	require.Empty(t, w.logged.String())
}

// The broker rarely tells nothing about a quorum queue that is deleted under load.
func TestConsumer_ComesBackAfterItsQueueWasDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 3
	if devtest.Soak() {
		rounds = 15
	}
	namespace := devtest.Namespace(t, topic)
	b := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	var latest, id atomic.Int64
	h := (&inbox{}).handlers()
	h.Handle = func(_ context.Context, d outbox.Delivery) error {
		for seen := latest.Load(); d.ID > seen && !latest.CompareAndSwap(seen, d.ID); seen = latest.Load() {
		}
		return nil
	}
	c, err := rabbitmq.NewConsumer(b, []string{topic}, h, rabbitmq.ConsumerConfig{})
	require.NoError(t, err)
	c.CheckEvery(time.Second)
	run(t, c)
	requireConsuming(t, c)
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			p.Publish(ctx, publications(id.Add(20), 20, time.Now()))
			<-ticker.C
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	goesOn := func(deletions int) {
		mark := id.Load() + 500
		require.Eventually(t, func() bool { return latest.Load() > mark }, patience, tick, "after %d deletions", deletions)
	}
	goesOn(0)
	for deletions := range rounds {
		_, err := ch.QueueDelete(namespace+".work."+topic, false, false, false)
		require.NoError(t, err)
		goesOn(deletions + 1)
	}
}
