package rabbitmq_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

const (
	tick  = 20 * time.Millisecond
	store = "11111111-2222-4333-8444-555555555555"
	topic = "order.expire"
)

// leakVariable makes the test binary leak a goroutine on purpose.
const leakVariable = "DUEBOX_RABBITMQ_LEAK"

func TestMain(m *testing.M) {
	if os.Getenv(leakVariable) != "" {
		go func() { select {} }()
	}
	goleak.VerifyTestMain(m)
}

func TestMain_CatchesALeakedGoroutine(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), leakVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "found unexpected goroutines")
}

// epochs is the ledger's count in memory.
type epochs struct {
	mu     sync.Mutex
	epoch  int64
	raises []bool // empty or not, in order
}

func (e *epochs) Epoch(context.Context) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch, nil
}

func (e *epochs) Raise(_ context.Context, from int64, empty bool) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch == from {
		e.epoch++
		e.raises = append(e.raises, empty)
	}
	return e.epoch, nil
}

func (e *epochs) raised() []bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.raises)
}

// shared is the shared broker with a namespace of the test's own.
func shared(tb testing.TB, topics ...string) *rabbitmq.Broker {
	tb.Helper()
	return at(tb, devtest.AMQP(tb), rabbitmq.Config{Namespace: devtest.Namespace(tb, topics...)})
}

func at(tb testing.TB, url string, cfg rabbitmq.Config) *rabbitmq.Broker {
	tb.Helper()
	b, err := rabbitmq.NewBroker(url, cfg)
	require.NoError(tb, err)
	return b
}

// runner is what has a Run.
type runner interface {
	Run(ctx context.Context) error
}

// run runs r until the test ends, or until the returned function is called, which waits for it.
func run(tb testing.TB, r runner) (stop func() error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			tb.Error("Run has not returned")
			return nil
		}
	})
	tb.Cleanup(func() { require.NoError(tb, stop()) })
	return stop
}

func publisher(tb testing.TB, b *rabbitmq.Broker, cfg rabbitmq.PublisherConfig) *rabbitmq.Publisher {
	tb.Helper()
	p, err := rabbitmq.NewPublisher(b, &epochs{}, cfg)
	require.NoError(tb, err)
	run(tb, p)
	return p
}

// publications are n messages with ids from first on.
func publications(first int64, n int, fireAt time.Time) []outbox.Publication {
	batch := make([]outbox.Publication, n)
	for i := range batch {
		batch[i] = outbox.Publication{
			Store: store, ID: first + int64(i), Topic: topic, Key: "O-1", Generation: 3, Attempt: 1,
			DueAt: fireAt.Truncate(time.Microsecond).UTC(), FireAt: fireAt,
			Payload: []byte(`{"no":"O-1"}`), ContentType: "application/json", Headers: map[string]string{
				"trace": "abc", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/tests", "ce-type": "t",
			},
		}
	}
	return batch
}

func requireConfirmed(tb testing.TB, receipts []outbox.Receipt) {
	tb.Helper()
	for i, r := range receipts {
		require.NoError(tb, r.Err, "receipt %d", i)
	}
}

// inbox is a consumer's handlers that write down what they get.
type inbox struct {
	mu       sync.Mutex
	got      []outbox.Delivery
	at       []time.Time
	unrouted []outbox.Delivery
	strays   []outbox.Stray
}

func (in *inbox) handlers() rabbitmq.Handlers {
	return rabbitmq.Handlers{Handle: in.handle, Unrouted: in.takeUnrouted, Keep: in.keep}
}

func (in *inbox) handle(_ context.Context, d outbox.Delivery) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.got = append(in.got, d)
	in.at = append(in.at, time.Now())
	return nil
}

func (in *inbox) takeUnrouted(_ context.Context, d outbox.Delivery) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unrouted = append(in.unrouted, d)
	return nil
}

func (in *inbox) takenUnrouted() []outbox.Delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.unrouted)
}

func (in *inbox) keep(_ context.Context, s outbox.Stray) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.strays = append(in.strays, s)
	return nil
}

func (in *inbox) deliveries() []outbox.Delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.got)
}

func (in *inbox) ids() map[int64]int {
	times := map[int64]int{}
	for _, d := range in.deliveries() {
		times[d.ID]++
	}
	return times
}

// consume runs a consumer of the topic until the test ends.
func consume(tb testing.TB, b *rabbitmq.Broker, h rabbitmq.Handlers, cfg rabbitmq.ConsumerConfig) (c *rabbitmq.Consumer, stop func() error) {
	tb.Helper()
	c, err := rabbitmq.NewConsumer(b, []string{topic}, h, cfg)
	require.NoError(tb, err)
	stop = run(tb, c)
	requireConsuming(tb, c)
	return c, stop
}

func requireConsuming(tb testing.TB, c *rabbitmq.Consumer) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		have, want := c.Consuming()
		return have == want
	}, patience, tick)
}
