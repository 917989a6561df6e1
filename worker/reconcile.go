package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/duebox/duebox/outbox"
)

// reconciling is what the clock does for the ledger.
func (w *Worker) reconciling() []Routine {
	run := func(kind outbox.RunKind, scope outbox.Scope) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			report, err := w.reconciler.Run(ctx, scope)
			w.noteRun(ctx, kind, report, err)
			return err
		}
	}
	return []Routine{
		{Name: "reconcile", Schedule: w.cfg.ReconcileSchedule, Run: run(outbox.RunPass, outbox.Scope{})},
		// A routine of its own, and not a part of the pass: it may last for long, and would have the clock skip passes.
		{Name: "purge", Schedule: w.cfg.ReconcileSchedule, Run: w.purge},
		{Name: "audit", Schedule: w.cfg.AuditSchedule, Run: run(outbox.RunAudit, outbox.Scope{Audit: true})},
		{Name: "requested reconcile runs", Schedule: "@every 2s", Run: w.runRequested},
	}
}

func (w *Worker) purge(ctx context.Context) error {
	report, err := w.reconciler.Purge(ctx, false)
	if report.Run != 0 || report.Skipped || err != nil { // else there was nothing to delete
		w.noteRun(ctx, outbox.RunPurge, report, err)
	}
	return err
}

// runRequested makes the pass or the audit that was asked for over HTTP. Purging is not asked for: the clock does it.
func (w *Worker) runRequested(ctx context.Context) error {
	report, err := w.reconciler.RunRequested(ctx)
	if report.Run == 0 { // none was, or another has it
		return err
	}
	kind := outbox.RunPass
	if report.Audit {
		kind = outbox.RunAudit
	}
	w.noteRun(ctx, kind, report, err)
	return err
}

// noteRun makes a run of the reconciler visible: in metrics, and in the log if it has found anything.
func (w *Worker) noteRun(ctx context.Context, kind outbox.RunKind, report outbox.Report, err error) {
	w.metrics.run(kind, report, err)
	// Also when it was skipped: another worker may have made the pass.
	for _, kind := range []outbox.RunKind{outbox.RunPass, outbox.RunAudit} {
		if last, err := w.store.LastRun(ctx, kind); err == nil {
			w.metrics.lastRun.WithLabelValues(string(kind)).Set(float64(last.FinishedAt.UnixMicro()) / 1e6)
		}
	}
	if report.Found() == 0 {
		return
	}
	attrs := []any{slog.Int64("run", report.Run), slog.String("kind", string(kind)), slog.Bool("dry_run", report.DryRun)}
	for finding, f := range report.Findings {
		attrs = append(attrs, slog.Group(finding, slog.Int("found", f.Found), slog.Int("mended", f.Mended), slog.Any("ids", f.IDs[:min(len(f.IDs), 5)])))
	}
	w.log.WarnContext(ctx, "reconciler found something", attrs...)
}

// rearm has what an earlier life of the broker held scheduled again, as soon as the publisher is connected to another. If we die
// here, the next connection of any worker or the next pass does it.
func (w *Worker) rearm(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.connected:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		report, again, err := w.reconciler.Rearm(ctx)
		if report.Run != 0 {
			w.noteRun(ctx, outbox.RunRearm, report, err)
		}
		if err != nil && ctx.Err() == nil {
			if !w.lacksTables(ctx, err) {
				w.repeats.pass("rearm", w.log).WarnContext(ctx, "what the broker may have lost is not scheduled again yet", slog.Any("error", err))
			}
			again = max(again, time.Second)
		}
		if again > 0 {
			timer.Reset(again)
		}
	}
}

// ReconcileReadiness says how the reconciler is doing, whoever runs it.
type ReconcileReadiness struct {
	LastPass  *time.Time `json:"last_pass"`  // when the last complete one ended, audits included; null: never, or the database does not say
	LastAudit *time.Time `json:"last_audit"` // the same of audits
	// Found is what the last complete pass has found, by kind.
	Found map[string]int `json:"found,omitempty"`
}

func (w *Worker) reconcileReadiness(ctx context.Context) (r ReconcileReadiness) {
	last := func(kind outbox.RunKind) (outbox.Run, *time.Time) {
		run, err := w.store.LastRun(ctx, kind)
		if err != nil { // none yet, or the database is away, which is said elsewhere
			return outbox.Run{}, nil
		}
		return run, &run.FinishedAt
	}
	var pass outbox.Run
	pass, r.LastPass = last(outbox.RunPass)
	_, r.LastAudit = last(outbox.RunAudit)
	for finding, f := range pass.Report.Findings {
		if r.Found == nil {
			r.Found = map[string]int{}
		}
		r.Found[finding] = f.Found
	}
	return r
}
