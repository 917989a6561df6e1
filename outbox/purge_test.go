package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
)

// Scenario 29: purging 2 million finished rows while orders come in: insert p99 under twice the baseline; live rows are never
// purged.
func TestScenario29_PurgingSlowsNoInsertDown(t *testing.T) { //nolint:paralleltest // It measures time.
	const (
		finished = 2_000_000
		live     = 1000
		rounds   = 20
		inserts  = 250 // of one measurement
	)
	l := openLedger(t, devtest.MariaDB(t).DSN("test"), outbox.StoreConfig{})
	for left := finished; left > 0; left -= 100_000 {
		l.exec(t, `INSERT INTO outbox_messages (shard, topic, message_key, content_type, payload, state, due_at, available_at, created_at, finished_at)
			SELECT seq % 16, 'test', CONCAT('key-', seq), 'text/plain', REPEAT('p', 40), 'done', '2026-01-01', '2026-01-02', '2026-01-01', '2026-01-01'
			FROM `+numbers(100_000))
	}
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
		SELECT seq % 16, 'live', 'text/plain', '', IF(seq % 2 = 0, 'published', 'dead'), '2026-01-01', IF(seq % 2 = 0, '2099-01-01', NULL), '2026-01-01'
		FROM `+numbers(live))
	var purged atomic.Int64 // of the run under way
	rec := l.reconciler(t, outbox.ReconcileConfig{Progress: func(p outbox.Progress) { purged.Store(int64(p.Purged)) }})

	// Quiet and busy in turns: what else the machine does meanwhile meets both.
	var quiet, busy []time.Duration
	for round := range rounds {
		quiet = append(quiet, l.insertTimes(t, fmt.Sprint("quiet-", round), inserts)...)
		ctx, cancel := context.WithCancel(t.Context())
		var purging sync.WaitGroup
		purged.Store(0)
		purging.Go(func() { _, _ = rec.Run(ctx, outbox.Scope{}) }) // ended in its middle
		require.Eventually(t, func() bool { return purged.Load() > 0 }, wait, time.Millisecond)
		// As many at least, and until it has gone on meanwhile.
		for before, part := purged.Load(), 0; part == 0 || purged.Load() == before; part++ {
			busy = append(busy, l.insertTimes(t, fmt.Sprint("busy-", round, "-", part), inserts)...)
		}
		cancel()
		purging.Wait()
	}
	t.Logf("p99 of an insert: quiet %v, while %d rows were purged %v", p99(quiet), finished-l.count(t, "topic = 'test'"), p99(busy))
	require.Less(t, p99(busy), 2*p99(quiet))
	require.Equal(t, live, l.count(t, "topic = 'live'"))
	require.Equal(t, len(quiet)+len(busy), l.count(t, "topic = 'order'"))
}

// insertTimes is how long each of n transactions took that enqueue one message.
func (l ledger) insertTimes(t *testing.T, prefix string, n int) []time.Duration {
	t.Helper()
	var times []time.Duration
	for i := range n {
		start := time.Now()
		l.tx(t, func(tx *gorm.DB) error {
			return l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "order", Key: fmt.Sprint(prefix, "-", i), Delay: time.Hour})
		})
		times = append(times, time.Since(start))
	}
	return times
}

func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100]
}

func middle(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func TestReconciler_PurgesAroundWhatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 3200)
	l.exec(t, "UPDATE outbox_messages SET state = 'done', available_at = '2026-01-01'")
	l.exec(t, "CREATE TABLE mine (message BIGINT, FOREIGN KEY (message) REFERENCES outbox_messages (id))")
	l.exec(t, "INSERT INTO mine SELECT MIN(id) FROM outbox_messages WHERE shard = 0")
	tx := l.db.Begin()
	require.NoError(t, tx.Exec("UPDATE outbox_messages SET held = TRUE WHERE id = (SELECT id FROM (SELECT MIN(id) AS id FROM outbox_messages WHERE shard = 1) AS m)").Error)
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 3198, report.Purged)
	require.NoError(t, tx.Rollback().Error)
	report, err = rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 1, report.Purged)
	require.Equal(t, 1, l.count(t, "TRUE"))
}
