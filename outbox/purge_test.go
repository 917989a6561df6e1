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
		purging.Go(func() { _, _ = rec.Purge(ctx, false) }) // ended in its middle
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

func TestPurge_GoesAroundWhatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 1600)
	l.exec(t, "UPDATE outbox_messages SET state = 'done', available_at = '2026-01-01'")
	l.exec(t, "CREATE TABLE mine (message BIGINT, FOREIGN KEY (message) REFERENCES outbox_messages (id))")
	l.exec(t, "INSERT INTO mine SELECT MIN(id) FROM outbox_messages WHERE shard = 0")
	tx := l.db.Begin()
	require.NoError(t, tx.Exec("UPDATE outbox_messages SET held = TRUE WHERE id = (SELECT id FROM (SELECT MIN(id) AS id FROM outbox_messages WHERE shard = 1) AS m)").Error)
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	report, err := rec.Purge(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 1598, report.Purged)
	require.NoError(t, tx.Rollback().Error)
	report, err = rec.Purge(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 1, report.Purged)
	require.Equal(t, 1, l.count(t, "TRUE"))
}

// expired puts in n done rows whose retention has ended.
func (l ledger) expired(t *testing.T, n int) {
	t.Helper()
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
		SELECT seq % 16, 'old', 'a/b', '', 'done', '2026-01-01', '2026-01-02', '2026-01-01' FROM `+numbers(n))
}

// A purge stands still in its middle: the runs of the other kinds come and go, and no second purge begins.
func TestPurge_HoldsUpNoOtherRunAndIsAlone(t *testing.T) {
	t.Parallel()
	dsn := devDSN(t)
	l, elsewhere := openLedger(t, dsn, outbox.StoreConfig{}), openLedger(t, dsn, outbox.StoreConfig{})
	const rows = 5000
	l.expired(t, rows)
	inside, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	rec := l.reconciler(t, outbox.ReconcileConfig{Progress: func(p outbox.Progress) {
		if p.Purged > 0 {
			once.Do(func() {
				close(inside)
				<-leave
			})
		}
	}})
	type ended struct {
		report outbox.Report
		err    error
	}
	purge := make(chan ended, 1)
	go func() {
		report, err := rec.Purge(context.Background(), false)
		purge <- ended{report, err}
	}()
	<-inside
	for i, other := range []*outbox.Reconciler{rec, elsewhere.reconciler(t, outbox.ReconcileConfig{})} {
		l.overdue(t, 3)
		report, err := other.Run(t.Context(), outbox.Scope{})
		require.NoError(t, err)
		require.Equal(t, 3, report.Of(outbox.FoundOverdue).Mended)
		require.Zero(t, report.Purged)
		last, err := l.LastRun(t.Context(), outbox.RunPass)
		require.NoError(t, err)
		require.Equal(t, report.Run, last.ID)
		report, err = other.Run(t.Context(), outbox.Scope{Audit: true})
		require.NoError(t, err)
		require.False(t, report.Skipped)
		require.Empty(t, report.Left)
		_, err = l.Raise(t.Context(), int64(i), true)
		require.NoError(t, err)
		l.exec(t, "UPDATE outbox_messages SET state = 'published' WHERE topic = 'test'")
		l.exec(t, "UPDATE outbox_meta SET rearmed_at = NULL")
		report, _, err = other.Rearm(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3*(i+1), report.Of(outbox.FoundEpoch).Mended)

		for _, dryRun := range []bool{false, true} {
			report, err = other.Purge(t.Context(), dryRun)
			require.NoError(t, err)
			require.True(t, report.Skipped)
			require.Zero(t, report.Run)
		}
	}
	require.Greater(t, l.count(t, "topic = 'old'"), rows/2, "it was in its middle all the time")
	close(leave)
	end := <-purge
	require.NoError(t, end.err)
	require.Equal(t, rows, end.report.Purged)
	require.Zero(t, l.count(t, "topic = 'old'"))
	last, err := l.LastRun(t.Context(), outbox.RunPurge)
	require.NoError(t, err)
	require.Equal(t, end.report.Run, last.ID)
	require.Equal(t, rows, last.Report.Purged)
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM outbox_reconcile_runs WHERE kind = 'purge'"))
}

func TestPurge_LeavesARecordIfThereWasSomethingToDelete(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{Owner: "me"})
	for _, put := range []string{
		`INSERT INTO outbox_unrouted (reason, kept_at) VALUES ('old', UTC_TIMESTAMP(6) - INTERVAL 8 DAY)`,
		`INSERT INTO outbox_reconcile_runs (kind, state, requested_at) VALUES ('pass', 'incomplete', UTC_TIMESTAMP(6) - INTERVAL 8 DAY)`,
		`INSERT INTO outbox_relays (owner, seen_at) VALUES ('old', UTC_TIMESTAMP(6) - INTERVAL 2 HOUR)`,
		`INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
			VALUES (0, 'old', 'a/b', '', 'done', '2026-01-01', UTC_TIMESTAMP(6), '2026-01-01')`,
		`INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
			VALUES (15, 'old', 'a/b', '', 'canceled', '2026-01-01', UTC_TIMESTAMP(6), '2026-01-01')`,
	} {
		report, err := rec.Purge(t.Context(), false)
		require.NoError(t, err)
		require.Zero(t, report.Run)
		require.False(t, report.Skipped)
		l.exec(t, put)
		report, err = rec.Purge(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, 1, report.Purged, put)
		run := l.run(t, report.Run)
		require.Equal(t, outbox.RunPurge, run.Kind)
		require.Equal(t, outbox.RunCompleted, run.State)
		require.Equal(t, "me", run.Owner)
		require.Equal(t, report, run.Report)
	}
	require.Equal(t, 5, l.scalar(t, "SELECT COUNT(*) FROM outbox_reconcile_runs"))
	_, err := l.LastRun(t.Context(), outbox.RunPass)
	require.ErrorIs(t, err, outbox.ErrNoRun, "a purge is no pass")
}

func TestPurge_BrokenPartsKeepNothingElseFromBeingPurged(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, "INSERT INTO outbox_unrouted (reason, kept_at) SELECT 'old', UTC_TIMESTAMP(6) - INTERVAL 8 DAY FROM "+numbers(10))
	l.exec(t, "CREATE TABLE evidence (kept BIGINT, FOREIGN KEY (kept) REFERENCES outbox_unrouted (id))")
	l.exec(t, "INSERT INTO evidence SELECT id FROM outbox_unrouted")
	l.expired(t, 100)
	report, err := l.reconciler(t, outbox.ReconcileConfig{}).Purge(t.Context(), false)
	require.ErrorContains(t, err, "purge kept deliveries: delete ")
	require.Equal(t, 100, report.Purged)
	run := l.run(t, report.Run)
	require.Equal(t, outbox.RunPurge, run.Kind)
	require.Equal(t, outbox.RunIncomplete, run.State)
	require.Contains(t, run.Error, "evidence")
}
