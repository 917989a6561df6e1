package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

func containsLine(text, prefix string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// TestScenario24_OutageSpendsNoAttempts: the broker is down for half an hour with 20 messages at the head that can never
// take effect, half of them because they cannot even be published, and 500 good ones behind.
func TestScenario24_OutageSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	const bad, good = 20, 500
	var mended atomic.Bool
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	p := newPlaceOn(t, broker.URL(), "outage")
	w, _ := p.start(t, worker.Config{MaxAttempts: 3, Backoff: func(int) time.Duration { return 10 * time.Millisecond }},
		map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
			if string(d.Payload) == "bad" && !mended.Load() {
				return errors.New("bad")
			}
			return written(ctx, tx, d)
		}})
	require.Eventually(t, ready(t, w), patience, tick)
	require.NoError(t, broker.Stop(t.Context()))
	require.Eventually(t, func() bool { return !ready(t, w)() }, patience, tick)

	head := make([]outbox.Message, bad)
	for i := range head {
		head[i] = outbox.Message{Topic: topic, Payload: []byte("bad"), Headers: map[string]string{"a": "b"}}
	}
	ids := p.enqueue(t, head...)
	p.enqueue(t, repeat(good)...)
	require.Never(t, func() bool {
		return p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0 OR repairs > 0 OR state <> 'scheduled'`) > 0
	}, 30*devtest.Minute(), tick) // the bound below is not scaled
	// What no version of the relay can read: it must not hold up the others.
	require.EqualValues(t, bad/2, p.exec(t, `UPDATE outbox_messages SET headers = 'not JSON' WHERE payload = 'bad' ORDER BY id LIMIT 10`))

	require.NoError(t, broker.Start(t.Context()))
	back := time.Now()
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == good }, patience, tick)
	require.Less(t, time.Since(back), time.Minute)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Dead) == bad }, patience, tick)
	require.Equal(t, bad, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE state = 'dead' AND attempts = 3 AND last_error IS NOT NULL`))
	p.requireOnce(t, good)

	// Once the cause is mended an operator gives them another life.
	p.exec(t, `UPDATE outbox_messages SET headers = NULL WHERE payload = 'bad'`)
	mended.Store(true)
	for _, id := range ids {
		_, err := p.store.Operator(outbox.OperatorConfig{}).Act(t.Context(), outbox.Actor{Name: "ann", Via: "test"}, id, outbox.Command{Action: outbox.ActRequeue})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == good+bad }, patience, tick)
	p.requireOnce(t, good+bad)
}

// TestScenario04_KilledBrokerLosesNothing and TestScenario05_EmptyBrokerLosesNothing: what the broker had confirmed and
// then forgot is scheduled again as soon as it is back, not only when it is overdue.
func TestScenario04_KilledBrokerLosesNothing(t *testing.T) {
	t.Parallel()
	loseBroker(t, 1000, func(broker *devenv.RabbitMQ) error { return broker.Kill() })
}

func TestScenario05_EmptyBrokerLosesNothing(t *testing.T) {
	t.Parallel()
	loseBroker(t, 200, func(broker *devenv.RabbitMQ) error { return broker.Wipe() })
}

func loseBroker(t *testing.T, messages int, lose func(*devenv.RabbitMQ) error) {
	t.Helper()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	p := newPlaceOn(t, broker.URL(), "killed")
	// No pass but those that the worker makes because it has found a new life of the broker.
	w, _ := p.start(t, worker.Config{ReconcileSchedule: "@yearly"}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	due := make([]outbox.Message, messages)
	for i := range due {
		due[i] = outbox.Message{Topic: topic, Delay: 12 * time.Second}
	}
	p.enqueue(t, due...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
	devtest.Settle(t, broker)
	require.NoError(t, lose(broker))
	require.NoError(t, broker.Start(t.Context()))
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, 2*patience, tick)
	p.requireOnce(t, messages)
	require.Equal(t, 2, p.count(t, `SELECT rearmed_epoch FROM outbox_meta`))
}
