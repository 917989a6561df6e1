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
		WHERE kind = 'audit' AND state = 'incomplete' AND last_error LIKE '%the pass was ended%'`), "with a true record")
	require.Equal(t, n, p.count(t, "SELECT COUNT(*) FROM written_by_check"))
	require.Zero(t, p.count(t, "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()"))
}
