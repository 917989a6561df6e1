package worker_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// never is a step that no worker comes to.
var never = step{Begins: []byte("no such thing"), When: before}

// Scenario 25: a relay is killed with a batch in flight: after publishing, and while it settles. Another takes over, effects once.
func TestScenario25_RelayKilledWithABatchInFlight(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]step{
		"published":   {Begins: []byte{0, 60, 0, 40}, When: sent, Broker: true}, // basic.publish of AMQP 0-9-1
		"confirmed":   {Begins: []byte{0, 60, 0, 80}, When: arrives, Broker: true},
		"settling":    {Begins: []byte("finished_at = IF(untracked"), When: sent},
		"has settled": {Begins: []byte("finished_at = IF(untracked"), When: answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages = 500
			p := newPlace(t, topic)
			due := make([]outbox.Message, messages)
			for i := range due {
				due[i] = outbox.Message{Topic: topic, Delay: 4 * time.Second}
			}
			p.enqueue(t, due...)
			d := p.doom
			d.step, d.Nth, d.Workers, d.Prefetch = dies, 1, 2, 4 // one confirm, and one statement, may be for all of them
			require.NoError(t, runDoomed(t, d))
			require.Positive(t, messages-p.inState(t, outbox.Done), "it had work")
			p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
			require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
			p.requireOnce(t, messages)
		})
	}
}

// Scenario 25: a worker is stopped past its lease and goes on: another relay has taken over, the first notices which leases it
// has lost, effects once.
func TestScenario25_RelayStoppedPastItsLeaseAndContinued(t *testing.T) {
	t.Parallel()
	const messages = 300
	p := newPlace(t, topic)
	d := p.doom
	d.step, d.Workers, d.Prefetch = never, 2, 4
	first, err := startDoomed(t, d)
	require.NoError(t, err)
	t.Cleanup(first.Kill)
	owners := func(where string) int {
		return p.count(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner IS NOT NULL AND "+where)
	}
	require.Eventually(t, func() bool { return owners("expires_at > UTC_TIMESTAMP(6)") == 16 }, patience, tick)
	var stopped string
	require.NoError(t, p.pool.QueryRowContext(t.Context(), "SELECT owner FROM outbox_shards WHERE shard = 0").Scan(&stopped))
	p.enqueue(t, repeat(messages)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) > 0 }, patience, tick)
	require.NoError(t, first.Signal(syscall.SIGSTOP))
	p.enqueue(t, repeat(messages)...)
	p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool { return owners("owner <> '"+stopped+"'") == 16 }, patience, tick)
	// What the first had been given by the broker comes back when its connection is found dead, or when it goes on.
	require.NoError(t, first.Signal(syscall.SIGCONT))
	p.enqueue(t, repeat(messages)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == 3*messages }, patience, tick)
	p.requireOnce(t, 3*messages)
	require.Eventually(t, func() bool { return strings.Contains(first.Tail(), `"leases lost"`) }, patience, tick)
	require.Eventually(t, func() bool { return owners("owner = '"+stopped+"'") == 8 }, patience, tick, "and gets its share again")
}
