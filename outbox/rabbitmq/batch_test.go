package rabbitmq_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// lots is a handler of many that writes down what it was given together.
type lots struct {
	inbox

	gate  chan struct{} // nil: open; else each call waits for it
	begun chan struct{}
	mu    sync.Mutex
	sizes []int
	judge func(ds []outbox.Delivery) []error
}

func newLots() *lots { return &lots{begun: make(chan struct{}, 1000)} }

func (l *lots) handlers() rabbitmq.Handlers {
	h := l.inbox.handlers()
	h.Handle = nil
	h.Batch = map[string]func(context.Context, []outbox.Delivery) []error{topic: l.handle}
	return h
}

func (l *lots) handle(ctx context.Context, ds []outbox.Delivery) []error {
	l.mu.Lock()
	l.sizes = append(l.sizes, len(ds))
	l.mu.Unlock()
	l.begun <- struct{}{}
	if l.gate != nil {
		<-l.gate
	}
	errs := make([]error, len(ds))
	if l.judge != nil {
		errs = l.judge(ds)
	}
	for i, d := range ds {
		if i < len(errs) && errs[i] == nil {
			_ = l.inbox.handle(ctx, d)
		}
	}
	return errs
}

func (l *lots) given() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.sizes)
}

// consumeLots runs a consumer of the topic whose lots are as large as they may be from the start.
func consumeLots(t *testing.T, b *rabbitmq.Broker, h rabbitmq.Handlers, cfg rabbitmq.ConsumerConfig) {
	t.Helper()
	c, err := rabbitmq.NewConsumer(b, []string{topic}, h, cfg)
	require.NoError(t, err)
	c.Lots(cfg.Batch)
	run(t, c)
	requireConsuming(t, c)
}

func TestConsumer_GivesWhatHasComeMeanwhileTogether(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	l := newLots()
	l.gate = make(chan struct{})
	consumeLots(t, b, l.handlers(), rabbitmq.ConsumerConfig{Workers: 1, Batch: 8, Prefetch: 16})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	<-l.begun
	require.Equal(t, []int{1}, l.given(), "the first does not wait for others")
	requireConfirmed(t, p.Publish(t.Context(), publications(2, 20, time.Now())))
	requireDepth(t, b, 21-16, 1)
	close(l.gate)
	require.Eventually(t, func() bool { return len(l.ids()) == 21 }, patience, tick)
	requireDepth(t, b, 0, 1)
	require.Len(t, l.deliveries(), 21, "each once")
	require.LessOrEqual(t, slices.Max(l.given()), 8)
	require.Less(t, len(l.given()), 21, "nothing was given together")
	for i, d := range l.deliveries() {
		require.Equal(t, int64(i+1), d.ID, "in their order")
	}
}

// Lots grow while they take no time, and what takes long is given alone.
func TestConsumer_MakesLotsAsLargeAsTheirTimeAllows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		each     time.Duration
		messages int
		largest  func(n int) bool
	}{
		"fast": {5 * time.Millisecond, 600, func(n int) bool { return n == 16 }},
		"slow": {1200 * time.Millisecond, 12, func(n int) bool { return n == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := shared(t, topic)
			l := newLots()
			l.judge = func(ds []outbox.Delivery) []error {
				<-time.After(c.each * time.Duration(len(ds)))
				return make([]error, len(ds))
			}
			p := publisher(t, b, rabbitmq.PublisherConfig{Topics: []string{topic}})
			requireConfirmed(t, p.Publish(t.Context(), publications(1, c.messages, time.Now())))
			consume(t, b, l.handlers(), rabbitmq.ConsumerConfig{Workers: 2, Batch: 16, Prefetch: 100})
			require.Eventually(t, func() bool { return len(l.ids()) == c.messages }, patience, tick)
			require.True(t, c.largest(slices.Max(l.given())), "%v", l.given())
		})
	}
}

// What a lot has left does not wait for the worker that had it.
func TestConsumer_LetsAnyWorkerTakeWhatALotHasLeft(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	l := newLots()
	l.gate = make(chan struct{})
	var together, alone atomic.Int64
	all := make(chan struct{})
	l.judge = func(ds []outbox.Delivery) []error {
		if len(ds) > 1 {
			together.Add(1)
			return slices.Repeat([]error{outbox.ErrAlone}, len(ds))
		}
		if ds[0].ID > 4 && alone.Add(1) == 4 { // all four at a time, or never
			close(all)
		}
		if ds[0].ID > 4 {
			<-all
		}
		return make([]error, 1)
	}
	consumeLots(t, b, l.handlers(), rabbitmq.ConsumerConfig{Workers: 4, Batch: 4, Prefetch: 100})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	for id := range int64(4) {
		requireConfirmed(t, p.Publish(t.Context(), publications(id+1, 1, time.Now())))
		<-l.begun
	}
	requireConfirmed(t, p.Publish(t.Context(), publications(5, 4, time.Now())))
	requireDepth(t, b, 0, 1)
	close(l.gate)
	require.Eventually(t, func() bool { return len(l.ids()) == 8 }, patience, tick)
	require.Positive(t, together.Load())
}

// What a lot leaves is given again alone, and goes its way as if it had come alone. Its neighbours are dealt with at once.
func TestConsumer_GivesWhatALotHasLeftAlone(t *testing.T) {
	t.Parallel()
	failure := errors.New("the database is away")
	for name, judge := range map[string]func(ds []outbox.Delivery) []error{
		"an error for one": func(ds []outbox.Delivery) []error {
			errs := make([]error, len(ds))
			for i, d := range ds {
				if d.ID == 5 && len(ds) > 1 {
					errs[i] = failure
				}
			}
			return errs
		},
		"too few results": func(ds []outbox.Delivery) []error {
			if len(ds) > 1 {
				return nil
			}
			return make([]error, 1)
		},
		"a panic": func(ds []outbox.Delivery) []error {
			if len(ds) > 1 {
				panic("handler")
			}
			return make([]error, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := shared(t, topic)
			l := newLots()
			l.gate, l.judge = make(chan struct{}), judge
			consumeLots(t, b, l.handlers(), rabbitmq.ConsumerConfig{Workers: 1, Batch: 10, Prefetch: 20})
			p := publisher(t, b, rabbitmq.PublisherConfig{})
			requireConfirmed(t, p.Publish(t.Context(), publications(1, 11, time.Now())))
			<-l.begun
			requireDepth(t, b, 0, 1)
			close(l.gate)
			require.Eventually(t, func() bool { return len(l.ids()) == 11 }, patience, tick)
			requireDepth(t, b, 0, 1)
			for _, d := range l.deliveries() {
				require.Zero(t, d.Redeliveries, "it did not go back to the broker")
			}
		})
	}
}

func TestNewConsumer_RefusesABatchThatNobodyWouldGet(t *testing.T) {
	t.Parallel()
	h := newLots().handlers()
	h.Batch["other"] = h.Batch[topic]
	_, err := rabbitmq.NewConsumer(at(t, "amqp://127.0.0.1", rabbitmq.Config{}), []string{topic}, h, rabbitmq.ConsumerConfig{})
	require.ErrorContains(t, err, `topic "other", which is not consumed`)
	_, err = rabbitmq.NewConsumer(at(t, "amqp://127.0.0.1", rabbitmq.Config{}), []string{topic}, newLots().handlers(), rabbitmq.ConsumerConfig{Batch: 1001})
	require.ErrorContains(t, err, "Batch is 1001, not 1 to 1000")
}

func TestConsumer_KeepsWhatIsMalformedOutOfALot(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	l := newLots()
	l.gate = make(chan struct{})
	consumeLots(t, b, l.handlers(), rabbitmq.ConsumerConfig{Workers: 1, Batch: 10, Prefetch: 20})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 3, time.Now())))
	<-l.begun
	raw(t, b, "nobody can read this")
	requireConfirmed(t, p.Publish(t.Context(), publications(4, 3, time.Now())))
	requireDepth(t, b, 0, 1)
	close(l.gate)
	require.Eventually(t, func() bool { return len(l.ids()) == 6 }, patience, tick)
	requireDepth(t, b, 0, 1)
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	require.Len(t, l.strays, 1)
	require.Equal(t, "nobody can read this", string(l.strays[0].Payload))
}

// A lot whose handler does not return goes back, and comes again.
func TestConsumer_GivesALotUpThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	l := newLots()
	stuck := make(chan struct{})
	var tried atomic.Bool
	l.judge = func(ds []outbox.Delivery) []error {
		if len(ds) > 1 && tried.CompareAndSwap(false, true) {
			<-stuck
		}
		return make([]error, len(ds))
	}
	l.gate = make(chan struct{})
	c, err := rabbitmq.NewConsumer(b, []string{topic}, l.handlers(), rabbitmq.ConsumerConfig{Workers: 1, Batch: 10, Prefetch: 20, HandleTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	c.Lots(10)
	c.SetOverrunGrace(100 * time.Millisecond)
	run(t, c)
	requireConsuming(t, c)
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 8, time.Now())))
	<-l.begun
	close(l.gate)
	require.Eventually(t, func() bool { return len(l.ids()) == 8 }, patience, tick)
	close(stuck)
	requireDepth(t, b, 0, 1)
}

// raw publishes a body that is no message of ours to the topic's queue.
func raw(t *testing.T, b *rabbitmq.Broker, body string) {
	t.Helper()
	ch := channel(t, devtest.AMQP(t))
	require.NoError(t, ch.PublishWithContext(t.Context(), "", rabbitmq.WorkQueue(b, topic), false, false, amqp.Publishing{Body: []byte(body)}))
}
