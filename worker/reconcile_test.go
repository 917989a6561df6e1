package worker_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

func TestWorker_ExecutesRequestedRunsAndShowsTheLastPass(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	var audited atomic.Int32
	w, _ := p.start(t, worker.Config{ReconcileSchedule: "@yearly", AuditSchedule: "@yearly", Checks: []outbox.Check{{
		Name: "own", Run: func(_ context.Context, pass *outbox.Pass) error {
			audited.Add(1)
			pass.Found("thing", "7", false)
			return nil
		},
	}}}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	require.Nil(t, w.Readiness(t.Context()).Reconcile.LastPass)

	for i, scope := range []outbox.Scope{{}, {Audit: true}} {
		id, err := p.store.RequestRun(t.Context(), scope)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			run, err := p.store.LookupRun(t.Context(), id)
			require.NoError(t, err)
			return run.State == outbox.RunCompleted
		}, patience, tick)
		require.EqualValues(t, i, audited.Load())
	}
	rec := get(t, w.Routes(), "/readyz", "")
	var body struct{ Reconcile worker.ReconcileReadiness }
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &body))
	require.WithinDuration(t, time.Now(), *body.Reconcile.LastPass, 10*time.Minute)
	require.WithinDuration(t, time.Now(), *body.Reconcile.LastAudit, 10*time.Minute)
	require.Eventually(t, func() bool {
		shown := get(t, w.Routes(), "/metrics", "").Body.String()
		return containsLine(shown, `duebox_reconcile_found_total{finding="thing"} 1`) &&
			containsLine(shown, `duebox_reconcile_runs_total{kind="audit",outcome="completed"} 1`) &&
			!containsLine(shown, `duebox_reconcile_last_success_timestamp_seconds{kind="pass"} 0`)
	}, patience, tick)
}

// Scenario 33: SIGTERM in the middle of a pass: it stops cleanly; nothing is written after Run has returned and the database
// is closed.
func TestScenario33_NothingIsWrittenAfterTheWorkerHasEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	began, ended := make(chan struct{}), make(chan error, 1)
	_, stop := p.start(t, worker.Config{ReconcileSchedule: "@yearly", AuditSchedule: "@every 1s", Checks: []outbox.Check{{
		Name: "writes all the time", Run: func(ctx context.Context, _ *outbox.Pass) (err error) {
			if err := p.db.WithContext(ctx).Exec("CREATE TABLE IF NOT EXISTS written_by_check (id BIGINT AUTO_INCREMENT PRIMARY KEY)").Error; err != nil {
				return err
			}
			close(began)
			for err == nil {
				err = p.db.WithContext(ctx).Exec("INSERT INTO written_by_check () VALUES ()").Error
			}
			ended <- ctx.Err()
			return err
		},
	}}}, map[string]worker.Effect{topic: written})
	<-began
	require.Eventually(t, func() bool { return p.count(t, "SELECT COUNT(*) FROM written_by_check") > 10 }, patience, tick)
	start := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(start), 10*time.Second)
	require.Len(t, ended, 1, "Run returns after its passes")
	require.ErrorIs(t, <-ended, context.Canceled)
	n := p.count(t, "SELECT COUNT(*) FROM written_by_check")
	require.Equal(t, 1, p.count(t, `SELECT COUNT(*) FROM outbox_reconcile_runs
		WHERE kind = 'audit' AND state = 'incomplete' AND last_error LIKE '%the run was ended%'`), "with a true record")
	require.Equal(t, n, p.count(t, "SELECT COUNT(*) FROM written_by_check"))
	require.Zero(t, p.count(t, "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()"))
}

// What is overdue is repaired while the same worker deletes what is expired, which takes much longer than the pause between two passes.
func TestWorker_APurgeHoldsUpNoPass(t *testing.T) {
	t.Parallel()
	const expired = 100_000
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{ReconcileSchedule: "@every 1s", AuditSchedule: "@yearly"}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	require.True(t, containsLine(get(t, w.Routes(), "/metrics", "").Body.String(), `duebox_reconcile_runs_total{kind="purge",outcome="completed"} 0`),
		"where there is nothing to delete there is no run")
	const old = `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
		VALUES (0, 'old', 'a/b', '', 'done', '2026-01-01', ?, '2026-01-01')`
	p.exec(t, old, "2026-01-02")
	require.Eventually(t, func() bool {
		shown := get(t, w.Routes(), "/metrics", "").Body.String()
		return containsLine(shown, `duebox_reconcile_runs_total{kind="purge",outcome="completed"} 1`) &&
			containsLine(shown, `duebox_reconcile_seconds_count{kind="purge"} 1`)
	}, patience, tick)

	p.exec(t, old, "2099-01-01")
	for rows := 1; rows < expired; rows *= 2 {
		p.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
			SELECT id % 16, topic, content_type, payload, state, due_at, available_at, created_at FROM outbox_messages LIMIT ?`, expired-rows)
	}
	p.exec(t, "UPDATE outbox_messages SET available_at = '2026-01-02'")
	left := func() int { return p.count(t, "SELECT COUNT(*) FROM outbox_messages WHERE topic = 'old'") }
	require.Eventually(t, func() bool { return left() < expired }, patience, tick)
	p.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
		VALUES (0, ?, 'a/b', '', 'published', '2026-01-01', UTC_TIMESTAMP(6), '2026-01-01')`, topic)
	require.Eventually(t, func() bool { return p.count(t, "SELECT COUNT(*) FROM effects") == 1 }, patience, tick)
	require.Equal(t, 1, p.count(t, "SELECT repairs FROM outbox_messages WHERE topic = ?", topic))
	require.Greater(t, left(), expired/2, "while it was purging")
	require.Equal(t, 2, p.count(t, "SELECT COUNT(*) FROM outbox_reconcile_runs WHERE kind = 'purge'"), "and the same purge still")
	require.Equal(t, 1, p.count(t, "SELECT COUNT(*) FROM outbox_reconcile_runs WHERE kind = 'purge' AND state = 'running'"))
}
