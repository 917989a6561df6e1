package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// A transaction that withdraws as many messages as there are workers, and stays open while they come due, must not stop the others.
func TestWorker_LockedMessagesStopNoOther(t *testing.T) {
	t.Parallel()
	const workers, locked, free = 4, 20, 40
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{Workers: workers, Grace: time.Second, ReconcileSchedule: "@every 1s"},
		map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	held := make([]outbox.Message, locked)
	for i := range held {
		held[i] = outbox.Message{Delay: 3 * time.Second}
	}
	ids := p.enqueue(t, held...)
	tx := p.db.Begin()
	require.NoError(t, tx.Error)
	t.Cleanup(func() { tx.Rollback() })
	require.NoError(t, tx.Exec("UPDATE outbox_messages SET last_error = 'locked' WHERE id IN ?", ids).Error)
	require.Eventually(t, func() bool {
		return p.count(t, "SELECT COUNT(*) FROM outbox_messages WHERE due_at <= UTC_TIMESTAMP(6) AND state <> 'done'") == locked
	}, patience, tick)
	p.enqueue(t, repeat(free)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == free }, 25*time.Second, tick, "while the others are locked")
	require.Eventually(t, func() bool {
		return containsLine(get(t, w.Routes(), "/metrics", "").Body.String(), `duebox_deliveries_total{outcome="busy",topic="test"} 20`)
	}, patience, tick)

	require.NoError(t, tx.Rollback().Error)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == free+locked }, patience, tick, "they are sent again")
	p.requireOnce(t, free+locked)
	require.Zero(t, p.count(t, "SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0"))
}
