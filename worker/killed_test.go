package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// guard is how the first statement of an effect's transaction looks on the wire.
var guard = []byte("state = 'done', live_key")

// consumerSteps are all that a worker does with a delivery, in order.
func consumerSteps() []step {
	deliver := step{Begins: []byte{0, 60, 0, 60}, When: arrives, Broker: true} // basic.deliver of AMQP 0-9-1
	steps := []step{deliver}
	for _, s := range []step{
		{Begins: []byte("begins = begins + 1")},
		{Begins: guard},
		{Begins: []byte("\x03SAVEPOINT"), InEffect: true}, // 3: a query, in the protocol of MySQL
		{Begins: []byte("INSERT INTO effects")},
		{Begins: []byte("\x03RELEASE SAVEPOINT"), InEffect: true},
		{Begins: []byte("\x03COMMIT"), InEffect: true},
	} {
		for _, s.When = range []string{before, sent, answered} {
			steps = append(steps, s)
		}
	}
	ack := step{Begins: []byte{0, 60, 0, 80}, Broker: true} // basic.ack
	for _, ack.When = range []string{before, sent} {
		steps = append(steps, ack)
	}
	return steps
}

// TestScenario38_WorkerKilledAtEveryStepOfItsConsumer: SIGKILL of the worker at every step of the consumer, 200 times:
// redelivery finishes the work, each effect happens once.
func TestScenario38_WorkerKilledAtEveryStepOfItsConsumer(t *testing.T) {
	t.Parallel()
	const (
		kills    = 200
		messages = 1200 // more than the doomed finish between them
	)
	p := newPlace(t, topic)
	p.publishAll(t, repeat(messages))

	steps := consumerSteps()
	next := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range next {
				d := p.doom
				d.step, d.Nth = steps[i%len(steps)], int32(1+i/len(steps)%3)
				d.Workers, d.Prefetch = 2, 4
				if err := runDoomed(t, d); err != nil {
					t.Errorf("kill %d: %v", i, err)
				}
			}
		})
	}
	for i := range kills {
		next <- i
	}
	close(next)
	wg.Wait()
	require.False(t, t.Failed())
	left := messages - p.inState(t, outbox.Done)
	require.Positive(t, left, "there was work at every kill")
	t.Logf("%d messages took effect between %d kills, %d attempts were counted", messages-left, kills, p.count(t, `SELECT SUM(attempts) FROM outbox_messages`))

	p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
}

// runDoomed runs a process until it has killed itself.
func runDoomed(t *testing.T, d doom) error {
	t.Helper()
	c, err := startDoomed(t, d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Wait(ctx); ctx.Err() != nil || !wasKilled(c) {
		return fmt.Errorf("it did not kill itself: %w", err)
	}
	return nil
}

// publishAll enqueues messages and has them published; at the end all of them wait in their queue, none was tried.
func (p *place) publishAll(t *testing.T, messages []outbox.Message) {
	t.Helper()
	w, stop := p.start(t, worker.Config{Workers: 1, Prefetch: 1, DrainTimeout: 2 * time.Second},
		map[string]worker.Effect{topic: func(ctx context.Context, _ *gorm.DB, _ outbox.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, messages...)
	// That of which the effect has begun is locked.
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) >= len(messages)-1 }, patience, tick)
	require.NoError(t, stop())
	require.Zero(t, p.count(t, `SELECT SUM(attempts) FROM outbox_messages`))
}

// A message whose effect kills its process ends dead. Those that were only waiting in the process died with it as often, and that
// is no fault of theirs.
func TestWorker_LeavesAMessageDeadThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	const others = 20
	p := newPlace(t, topic)
	p.publishAll(t, append([]outbox.Message{{Topic: topic, Payload: []byte(lethal)}}, repeat(others)...))
	d := p.doom
	d.Workers, d.Prefetch, d.MaxAttempts = 1, 8, 2
	d.Begins = []byte("no such thing")
	deaths := 0
	for p.inState(t, outbox.Dead) == 0 {
		require.Less(t, deaths, 30)
		c, err := startDoomed(t, d)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			select {
			case <-c.Done():
				deaths++
				return true
			default:
				return p.inState(t, outbox.Dead) == 1
			}
		}, patience, tick)
		c.Kill()
		require.True(t, wasKilled(c), c.Tail())
	}
	// The second attempt is a new publication, whose first death is not noted. The first may have come back from publishAll already.
	require.GreaterOrEqual(t, deaths, 3+4)
	require.Equal(t, 1, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE payload = ? AND attempts = 2 AND last_error LIKE 'died while handling%'`, lethal))

	p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == others }, patience, tick)
	p.requireOnce(t, others)
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE payload <> ? AND attempts > 0`, lethal))
}
