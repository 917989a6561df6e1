package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// requireDepth waits until the topic's queue looks so.
func requireDepth(t *testing.T, b *rabbitmq.Broker, wantReady, wantConsumers int) {
	t.Helper()
	var ready, consumers int
	var err error
	require.Eventually(t, func() bool {
		ready, consumers, err = b.Depth(t.Context(), topic)
		return err == nil && ready == wantReady && consumers == wantConsumers
	}, patience, tick, "want %d ready, %d consumers", wantReady, wantConsumers)
}

// put publishes n messages that are due, ids from first on, past the product's publisher.
func put(t *testing.T, url, namespace string, first, n int) {
	t.Helper()
	p := publisher(t, at(t, url, rabbitmq.Config{Namespace: namespace}), rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(int64(first), n, time.Now())))
}

func TestConsumer_AcknowledgesWhatItsHandlerHasDealtWith(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	in := &inbox{}
	_, stop := consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 100, time.Now())))
	require.Eventually(t, func() bool { return len(in.ids()) == 100 }, patience, tick)
	requireDepth(t, b, 0, 1)
	require.NoError(t, stop())
	requireDepth(t, b, 0, 0)
	require.Len(t, in.deliveries(), 100)
}

func TestConsumer_HoldsADeliveryWhileItsHandlerReturnsErrors(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	in := &inbox{}
	h := in.handlers()
	var calls atomic.Int32
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		if calls.Add(1) <= 3 {
			return errors.New("the database is away")
		}
		return in.handle(ctx, d)
	}
	consume(t, b, h, rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	require.Eventually(t, func() bool { return len(in.deliveries()) == 1 }, patience, tick)
	require.Zero(t, in.deliveries()[0].Redeliveries, "it did not go back to the broker")
	require.Equal(t, int32(4), calls.Load())
	requireDepth(t, b, 0, 1)
}

func TestConsumer_GivesBackOnceAndGoesOnWhenHandlersAreReady(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	in := &inbox{}
	h := in.handlers()
	var down atomic.Bool
	var asked atomic.Int32
	down.Store(true)
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		if down.Load() {
			return errors.New("the database is away")
		}
		return in.handle(ctx, d)
	}
	h.Ready = func(context.Context) error {
		asked.Add(1)
		if down.Load() {
			return errors.New("the database is away")
		}
		return nil
	}
	c, _ := consume(t, b, h, rabbitmq.ConsumerConfig{Workers: 2, HoldTimeout: 300 * time.Millisecond})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
	require.Eventually(t, func() bool { return asked.Load() >= 3 }, patience, tick)
	requireDepth(t, b, 20, 0)
	have, want := c.Consuming()
	require.Equal(t, 1, have, "the queue of unrouted messages is consumed all the time")
	require.Equal(t, 2, want)
	down.Store(false)
	require.Eventually(t, func() bool { return len(in.ids()) == 20 }, patience, tick)
	for _, d := range in.deliveries() {
		require.LessOrEqual(t, d.Redeliveries, 1, "no loop: it went back once")
	}
	requireDepth(t, b, 0, 1)
}

func TestConsumer_LetsRunningHandlersFinishAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	started, finish := make(chan struct{}, 100), make(chan struct{})
	var done atomic.Int32
	h := (&inbox{}).handlers()
	h.Handle = func(ctx context.Context, _ outbox.Delivery) error {
		started <- struct{}{}
		select {
		case <-finish:
			done.Add(1)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c, err := rabbitmq.NewConsumer(b, []string{topic}, h, rabbitmq.ConsumerConfig{Workers: 3, Prefetch: 10})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	requireConsuming(t, c)
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
	for range 3 {
		<-started
	}
	cancel()
	require.Eventually(t, func() bool {
		have, _ := c.Consuming()
		return have == 0
	}, patience, tick)
	require.Empty(t, ended, "handlers are still running")
	close(finish)
	require.NoError(t, <-ended)
	require.Equal(t, int32(3), done.Load())
	require.Empty(t, started, "nothing was begun after the end")
	requireDepth(t, b, 17, 0)
}

func TestConsumer_EndsHandlersWhenTheDrainTakesTooLong(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	started := make(chan struct{})
	h := (&inbox{}).handlers()
	h.Handle = func(ctx context.Context, _ outbox.Delivery) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}
	_, stop := consume(t, b, h, rabbitmq.ConsumerConfig{DrainTimeout: 100 * time.Millisecond})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	<-started
	require.NoError(t, stop())
	requireDepth(t, b, 1, 0)
}

func TestConsumer_SaysThatHandlersHaveNotReturned(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	started, finish := make(chan struct{}), make(chan struct{})
	defer close(finish)
	h := (&inbox{}).handlers()
	h.Handle = func(context.Context, outbox.Delivery) error {
		close(started)
		<-finish
		return nil
	}
	c, err := rabbitmq.NewConsumer(b, []string{topic}, h, rabbitmq.ConsumerConfig{DrainTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	requireConsuming(t, c)
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	<-started
	cancel()
	require.ErrorContains(t, <-ended, "have not returned")
}

func TestConsumer_EndsOnAStalledSocket(t *testing.T) {
	t.Parallel()
	network, url := through(t, devtest.AMQP(t))
	b := at(t, url, rabbitmq.Config{Namespace: devtest.Namespace(t, topic)})
	_, stop := consume(t, b, (&inbox{}).handlers(), rabbitmq.ConsumerConfig{})
	network.stall()
	start := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(start), 10*time.Second)
}

func TestConsumer_ComesBackAfterItsQueueWasDeleted(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, topic)
	b := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	for i, queue := range []string{".work." + topic, ".unrouted"} {
		_, err = ch.QueueDelete(namespace+queue, false, false, false)
		require.NoError(t, err)
		requireDepth(t, b, 0, 1)
		requireConfirmed(t, p.Publish(t.Context(), publications(int64(i+1), 1, time.Now())))
		require.Eventually(t, func() bool { return len(in.ids()) == i+1 }, patience, tick)
	}
	stray := publications(9, 1, time.Now())
	stray[0].Topic = "nobody.listens"
	require.Eventually(t, func() bool { // the queue that was just deleted may not be there for the first ones
		requireConfirmed(t, p.Publish(t.Context(), stray))
		d := in.takenUnrouted()
		return len(d) > 0 && d[0].Topic == "nobody.listens" && d[0].ID == 9
	}, patience, tick)
}

// Somebody deletes the exchange, and with it all bindings. What is published meanwhile is not lost, and the first message that
// reaches no queue mends it.
func TestConsumer_BindsItsTopicAgainWhenAMessageReachedNoQueue(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, topic)
	b := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	require.Eventually(t, func() bool { return in.ids()[1] == 1 }, patience, tick)
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	require.NoError(t, ch.ExchangeDelete(namespace+".deliver", false, false))
	require.Eventually(t, func() bool {
		for _, r := range p.Publish(t.Context(), publications(2, 1, time.Now())) {
			require.NotErrorIs(t, r.Err, outbox.ErrUnpublishable)
		}
		return in.ids()[2] > 0
	}, patience, tick)
	require.NotEmpty(t, in.takenUnrouted())
}

// What the broker itself counts: a delivery whose consumer went away without an answer.
func TestConsumer_SeesHowOftenADeliveryCameBack(t *testing.T) {
	t.Parallel()
	for queueType, want := range map[rabbitmq.QueueType][]int{
		rabbitmq.Quorum:  {0, 1, 2, 3},
		rabbitmq.Classic: {0, 1, 1, 1},
	} {
		t.Run(string(queueType), func(t *testing.T) {
			t.Parallel()
			network, url := through(t, devtest.AMQP(t))
			namespace := devtest.Namespace(t, topic)
			cfg := rabbitmq.Config{Namespace: namespace, QueueType: queueType}
			var calls atomic.Int32
			counts := make(chan int, len(want))
			h := (&inbox{}).handlers()
			h.Handle = func(ctx context.Context, d outbox.Delivery) error {
				counts <- d.Redeliveries
				if int(calls.Add(1)) < len(want) {
					network.cut()
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			consume(t, at(t, url, cfg), h, rabbitmq.ConsumerConfig{HandleTimeout: 100 * time.Millisecond})
			p := publisher(t, at(t, devtest.AMQP(t), cfg), rabbitmq.PublisherConfig{})
			requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
			for _, n := range want {
				require.Equal(t, n, <-counts)
			}
		})
	}
}

// hanging is a consumer whose handlers are given up soon.
func hanging(t *testing.T, b *rabbitmq.Broker, h rabbitmq.Handlers, workers int) *rabbitmq.Consumer {
	t.Helper()
	c, err := rabbitmq.NewConsumer(b, []string{topic}, h, rabbitmq.ConsumerConfig{
		Workers: workers, HandleTimeout: 50 * time.Millisecond, DrainTimeout: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	c.SetOverrunGrace(50 * time.Millisecond)
	return c
}

func TestConsumer_GivesUpAHandlerThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	var logged syncBuffer
	b := at(t, devtest.AMQP(t), rabbitmq.Config{
		Namespace: devtest.Namespace(t, topic), Log: slog.New(slog.NewJSONHandler(&logged, nil)),
	})
	in := &inbox{}
	h := in.handlers()
	goOn, returned := make(chan struct{}), make(chan struct{})
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		if d.ID == 1 && d.Redeliveries == 0 {
			<-goOn
			close(returned)
			return nil // too late: this acknowledges nothing
		}
		return in.handle(ctx, d)
	}
	c := hanging(t, b, h, 1)
	stop := run(t, c)
	requireConsuming(t, c)
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 10, time.Now())))
	requireDepth(t, b, 0, 1)
	require.Eventually(t, func() bool { return len(in.ids()) == 10 }, patience, tick, "the only worker is free again, and it came back")
	for _, d := range in.deliveries() {
		require.Equal(t, d.ID == 1, d.Redeliveries > 0, "message %d: its neighbours stay where they are", d.ID)
	}
	require.Contains(t, logged.String(), "handler did not return")
	require.Contains(t, logged.String(), fmt.Sprintf("%q:%q", "message_id", store+"-1"))
	close(goOn)
	<-returned
	require.NoError(t, stop())
	requireDepth(t, b, 0, 0)
}

func TestConsumer_BoundsHandlersThatWereGivenUp(t *testing.T) {
	t.Parallel()
	const workers = 10
	b := shared(t, topic)
	in := &inbox{}
	h := in.handlers()
	goOn := make(chan struct{})
	var running, most atomic.Int64
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-goOn
		return in.handle(ctx, d)
	}
	c := hanging(t, b, h, workers)
	stop := run(t, c)
	requireConsuming(t, c)
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
	require.Eventually(t, func() bool { return running.Load() == rabbitmq.MaxOverran+workers }, patience, tick)
	require.Never(t, func() bool { return running.Load() > rabbitmq.MaxOverran+workers }, time.Second, tick)
	close(goOn)
	requireDepth(t, b, 0, 1)
	require.Eventually(t, func() bool { return len(in.ids()) == 20 && running.Load() == 0 }, patience, tick, "and then they go on")
	require.NoError(t, stop())
	require.EqualValues(t, rabbitmq.MaxOverran+workers, most.Load())
}

func TestConsumer_SurvivesHandlersThatPanicOrEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	in := &inbox{}
	h := in.handlers()
	var calls atomic.Int32
	h.Handle = func(ctx context.Context, d outbox.Delivery) error {
		switch calls.Add(1) {
		case 1:
			panic("boom")
		case 2:
			runtime.Goexit()
		}
		return in.handle(ctx, d)
	}
	consume(t, b, h, rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	require.Eventually(t, func() bool { return len(in.deliveries()) == 1 }, patience, tick)
	require.Zero(t, in.deliveries()[0].Redeliveries, "held like after any error")
	requireDepth(t, b, 0, 1)
}

func TestScenario16_NoAcknowledgementCrossesAConnection(t *testing.T) {
	t.Parallel()
	network, url := through(t, devtest.AMQP(t))
	namespace := devtest.Namespace(t, topic)
	b := at(t, url, rabbitmq.Config{Namespace: namespace})
	direct := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	var (
		mu      sync.Mutex
		effects = map[int64]int{}
		calls   int
		first   = make(chan struct{}, 100)
		second  = make(chan struct{})
	)
	h := (&inbox{}).handlers()
	h.Handle = func(_ context.Context, d outbox.Delivery) error {
		mu.Lock()
		calls++
		early := calls <= 4
		mu.Unlock()
		if early {
			first <- struct{}{}
			<-second // the connection dies meanwhile, and another one gives out the same tags
		}
		mu.Lock()
		defer mu.Unlock()
		if effects[d.ID] == 0 { // the guard
			effects[d.ID]++
		}
		return nil
	}
	c, _ := consume(t, b, h, rabbitmq.ConsumerConfig{Workers: 4, Prefetch: 4})
	put(t, devtest.AMQP(t), namespace, 1, 12)
	for range 4 {
		<-first
	}
	network.cut()
	requireConsuming(t, c)
	requireDepth(t, direct, 8, 1) // four are given out again, under tags 1 to 4
	close(second)
	requireDepth(t, direct, 0, 1)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(effects) == 12 && calls == 16
	}, patience, tick, "the four that lost their connection came again")
	for id, n := range effects {
		require.Equal(t, 1, n, "message %d", id)
	}
}

func TestScenario15_BrokerStopsAndEveryConsumerComesBack(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	b := at(t, server.URL(), rabbitmq.Config{})
	topics := []string{topic, "order.remind", "a.b"}
	in := &inbox{}
	c, err := rabbitmq.NewConsumer(b, topics, in.handlers(), rabbitmq.ConsumerConfig{Workers: 3})
	require.NoError(t, err)
	p, err := rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	run(t, c)
	run(t, p)
	pprof.SetGoroutineLabels(t.Context())
	cycle := func(id int64) {
		requireConsuming(t, c)
		for _, name := range topics {
			require.Eventually(t, func() bool {
				_, consumers, err := b.Depth(t.Context(), name)
				return err == nil && consumers == 1
			}, patience, tick)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		requireConfirmed(t, p.Publish(ctx, publications(id, 1, time.Now())))
		require.Eventually(t, func() bool { return in.ids()[id] >= 1 }, patience, tick)
	}
	cycle(1)
	before := labelled(t, t.Name())
	require.Greater(t, before, 12, "3 workers for each of 4 queues")
	rounds := 3
	if devtest.Soak() {
		rounds = 10
	}
	for round := range rounds {
		stop := server.Stop
		if round%3 == 1 {
			stop = func(context.Context) error { return server.Kill() }
		}
		require.NoError(t, stop(t.Context()))
		require.Eventually(t, func() bool {
			have, _ := c.Consuming()
			return have == 0 && !p.State().Connected
		}, patience, tick)
		require.Never(t, func() bool {
			have, _ := c.Consuming()
			return have != 0 || p.State().Connected
		}, 90*devtest.Second(0), tick)
		require.NoError(t, server.Start(t.Context()))
		start := time.Now()
		cycle(int64(round + 2))
		require.Less(t, time.Since(start), 30*time.Second)
	}
	require.Eventually(t, func() bool { return labelled(t, t.Name()) <= before }, patience, tick,
		"%d goroutines before", before)
}

// labelled counts the goroutines that were started below a goroutine with this label: tests run beside each other.
func labelled(t *testing.T, label string) int {
	t.Helper()
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	total := 0
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(record, fmt.Sprintf("%q:%q", "test", label)) {
			continue
		}
		count, _, _ := strings.Cut(record, " @ ")
		count = count[strings.LastIndex(count, "\n")+1:]
		n, err := strconv.Atoi(count)
		require.NoError(t, err, record)
		total += n
	}
	return total
}

func TestScenario20_MalformedDeliveriesAreKeptAndGoodOnesFlow(t *testing.T) {
	t.Parallel()
	var logged syncBuffer
	var observed atomic.Int32
	namespace := devtest.Namespace(t, topic)
	b := at(t, devtest.AMQP(t), rabbitmq.Config{
		Namespace: namespace, Log: slog.New(slog.NewJSONHandler(&logged, nil)),
		Observer: rabbitmq.Observer{Malformed: func(string) { observed.Add(1) }},
	})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	good := func(id int64) amqp.Table {
		return amqp.Table{
			"duebox-id": id, "duebox-store": store, "duebox-generation": int64(1), "duebox-attempt": int64(0), "duebox-due": int64(0),
		}
	}
	const each = 10
	for i := range each {
		for _, m := range []amqp.Publishing{
			{Body: []byte("{not json"), ContentType: "application/json", MessageId: "foreign"},
			{ContentType: "text/plain"},
			{Headers: amqp.Table{"duebox-id": "1"}, Body: nil},
			{Headers: good(int64(i + 1)), Body: []byte{0xff, 0xfe}, ContentType: "image/png"}, // opaque to us: good
		} {
			require.NoError(t, ch.Publish(namespace+".deliver", topic, false, false, m))
		}
		// Around the routing, straight into the queue: it has another routing key.
		require.NoError(t, ch.Publish("", namespace+".work."+topic, false, false, amqp.Publishing{Headers: good(1000)}))
		// A topic that nobody has.
		require.NoError(t, ch.Publish(namespace+".deliver", "no.such.topic", false, false, amqp.Publishing{Body: []byte("?")}))
	}
	require.Eventually(t, func() bool { return observed.Load() == 5*each && len(in.ids()) == each }, patience, tick)
	requireDepth(t, b, 0, 1)
	in.mu.Lock()
	defer in.mu.Unlock()
	require.Len(t, in.strays, 5*each)
	reasons := map[string]int{}
	for _, s := range in.strays {
		require.Equal(t, "malformed", s.Reason)
		reasons[s.Detail]++
	}
	require.Equal(t, map[string]int{
		"header duebox-store is missing": 4 * each,
		fmt.Sprintf("routing key %q is not the topic of %s.work.%s", namespace+".work."+topic, namespace, topic): each,
	}, reasons)
	require.LessOrEqual(t, strings.Count(logged.String(), "malformed"), 4, "two queues, few lines: %s", logged.String())
}

// syncBuffer is a buffer for a logger of many goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestScenario14_OtherArgumentsAreAClearErrorAndNoLoop(t *testing.T) {
	t.Parallel()
	var logged syncBuffer
	namespace := devtest.Namespace(t, topic)
	cfg := rabbitmq.Config{Namespace: namespace, QueueType: rabbitmq.Classic}
	in := &inbox{}
	_, stop := consume(t, at(t, devtest.AMQP(t), cfg), in.handlers(), rabbitmq.ConsumerConfig{})
	require.NoError(t, stop())
	_, stop = consume(t, at(t, devtest.AMQP(t), cfg), in.handlers(), rabbitmq.ConsumerConfig{})
	require.NoError(t, stop(), "the same arguments again are fine")

	cfg.QueueType, cfg.Log = rabbitmq.Quorum, slog.New(slog.NewJSONHandler(&logged, nil))
	c, err := rabbitmq.NewConsumer(at(t, devtest.AMQP(t), cfg), []string{topic}, in.handlers(), rabbitmq.ConsumerConfig{})
	require.NoError(t, err)
	run(t, c)
	require.Eventually(t, func() bool { return strings.Contains(logged.String(), rabbitmq.ErrMismatch.Error()) }, patience, tick)
	require.Contains(t, logged.String(), namespace+".unrouted")
	require.Contains(t, logged.String(), "x-queue-type")
	require.Less(t, strings.Count(logged.String(), "\n"), 5)
}

func TestNewConsumer_Validates(t *testing.T) {
	t.Parallel()
	b := at(t, "amqp://localhost", rabbitmq.Config{})
	h := (&inbox{}).handlers()
	for text, build := range map[string]func() (*rabbitmq.Consumer, error){
		"a broker": func() (*rabbitmq.Consumer, error) {
			return rabbitmq.NewConsumer(nil, []string{topic}, h, rabbitmq.ConsumerConfig{})
		},
		"Keep": func() (*rabbitmq.Consumer, error) {
			return rabbitmq.NewConsumer(b, []string{topic}, rabbitmq.Handlers{Handle: h.Handle}, rabbitmq.ConsumerConfig{})
		},
		"Handle": func() (*rabbitmq.Consumer, error) {
			return rabbitmq.NewConsumer(b, []string{topic}, rabbitmq.Handlers{Keep: h.Keep}, rabbitmq.ConsumerConfig{})
		},
		"a topic": func() (*rabbitmq.Consumer, error) {
			return rabbitmq.NewConsumer(b, nil, rabbitmq.Handlers{Keep: h.Keep}, rabbitmq.ConsumerConfig{})
		},
		"there twice": func() (*rabbitmq.Consumer, error) {
			return rabbitmq.NewConsumer(b, []string{topic, topic}, h, rabbitmq.ConsumerConfig{})
		},
		"Prefetch": func() (*rabbitmq.Consumer, error) {
			return rabbitmq.NewConsumer(b, []string{topic}, h, rabbitmq.ConsumerConfig{Prefetch: 70_000})
		},
	} {
		_, err := build()
		require.ErrorContains(t, err, text)
	}
}
