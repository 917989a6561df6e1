package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func newReconcile() *cobra.Command {
	var (
		scope         outbox.Scope
		check, asJSON bool
		wait          time.Duration
	)
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Make one pass of the reconciler: find what the broker has lost and schedule it again",
		Long: `Make one pass of the reconciler: find what the broker has lost and schedule it again. Then delete
what has been finished for longer than RETENTION, unless a worker is at that already. With --audit also
compare orders and stock with the ledger, and report what waits for an operator.

Exit codes: 0 the pass is complete, 2 it could not run to its end, and with --check 1 if it has found anything.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			report, err := reconcile(c, scope, wait)
			if report.Run != 0 { // also of a pass that could not complete all of its parts
				err = errors.Join(err, printReport(c.OutOrStdout(), report, asJSON))
			}
			if err != nil {
				return fail(cannotBegin, err)
			}
			if found := report.Found(); check && found > 0 {
				return fail(wentWrong, fmt.Errorf("faults found: %d", found))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&scope.Audit, "audit", false, "audit orders, stock and what waits for an operator as well")
	c.Flags().BoolVar(&scope.DryRun, "dry-run", false, "report what would be mended and deleted, and change nothing")
	c.Flags().BoolVar(&check, "check", false, "exit with 1 if anything was found")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as a JSON object")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait while a worker makes a pass")
	return c
}

func reconcile(c *cobra.Command, scope outbox.Scope, wait time.Duration) (outbox.Report, error) {
	cfg, err := load("MYSQL_DSN", "AMQP_URL")
	if err != nil {
		return outbox.Report{}, err
	}
	log, err := newLog(c.ErrOrStderr(), "warn")
	if err != nil {
		return outbox.Report{}, err
	}
	db, closeDB, err := openDatabase(c, cfg, false)
	if err != nil {
		return outbox.Report{}, err
	}
	defer closeDB()
	pool, err := db.DB()
	if err != nil {
		return outbox.Report{}, err
	}
	if err := askTables(c.Context(), pool); err != nil {
		return outbox.Report{}, err
	}
	store, err := outbox.NewStore(db, outbox.StoreConfig{Retention: cfg.Retention, MaxAttempts: cfg.MaxAttempts})
	if err != nil {
		return outbox.Report{}, err
	}
	shop, err := newShop(db, store, cfg, nil)
	if err != nil {
		return outbox.Report{}, err
	}
	encrypt, err := brokerTLS(c, cfg, log)
	if err != nil {
		return outbox.Report{}, err
	}
	broker, err := rabbitmq.NewBroker(cfg.AMQPURL.Reveal(), rabbitmq.Config{Namespace: cfg.Namespace, TLS: encrypt, Log: log})
	if err != nil {
		return outbox.Report{}, err
	}
	progress, done := showProgress(c.ErrOrStderr())
	defer done()
	reconciler, err := outbox.NewReconciler(store, outbox.ReconcileConfig{
		Grace: cfg.Grace, Depth: broker.Depth, Checks: shop.Checks(), Progress: progress, Log: log,
	})
	if err != nil {
		return outbox.Report{}, err
	}
	return passAndPurge(c.Context(), reconciler, scope, wait)
}

// passAndPurge tells of both in one report. A purge of another process may last for an hour, and is not waited for.
func passAndPurge(ctx context.Context, r *outbox.Reconciler, scope outbox.Scope, wait time.Duration) (outbox.Report, error) {
	report, err := alone(ctx, r, scope, wait)
	if report.Run == 0 || ctx.Err() != nil {
		return report, err
	}
	purge, purgeErr := r.Purge(ctx, scope.DryRun)
	report.Purged = purge.Purged
	report.Seconds += purge.Seconds
	report.Errors = append(report.Errors, purge.Errors...)
	if purge.Skipped {
		report.Left = append(report.Left, "the purge")
	}
	if purgeErr != nil && purge.Run == 0 {
		report.Errors = append(report.Errors, purgeErr.Error())
	}
	return report, errors.Join(err, purgeErr)
}

// alone makes a pass or an audit, after the one that is under way elsewhere.
func alone(ctx context.Context, r *outbox.Reconciler, scope outbox.Scope, wait time.Duration) (outbox.Report, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, wait, errors.New("another pass was under way all the time"))
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		report, err := r.Run(ctx, scope)
		if err != nil || !report.Skipped {
			return report, err
		}
		select {
		case <-again.C:
		case <-waiting.Done():
			return report, context.Cause(waiting)
		}
	}
}

// showProgress shows on a terminal how far a pass has come, in one line that done removes.
func showProgress(w io.Writer) (progress func(outbox.Progress), done func()) {
	const clearLine = "\r\x1b[K"
	file, ok := w.(*os.File)
	if !ok {
		return nil, func() {}
	}
	if s, err := file.Stat(); err != nil || s.Mode()&os.ModeCharDevice == 0 {
		return nil, func() {}
	}
	var shown time.Time
	var part string
	progress = func(p outbox.Progress) {
		if p.Part == part && time.Since(shown) < 100*time.Millisecond {
			return
		}
		shown, part = time.Now(), p.Part
		_, _ = fmt.Fprintf(file, "%s%s: looked at %d, found %d, mended %d, purged %d", clearLine, p.Part, p.Looked, p.Found, p.Mended, p.Purged)
	}
	return progress, func() { _, _ = io.WriteString(file, clearLine) }
}

func printReport(w io.Writer, r outbox.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	var b strings.Builder
	how := "pass"
	if r.Audit {
		how = "audit"
	}
	if r.DryRun {
		how = "dry " + how
	}
	state, purged := "", "purged"
	if len(r.Errors) > 0 {
		state = ", incomplete"
	}
	if r.DryRun {
		purged = "to be purged"
	}
	fmt.Fprintf(&b, "%s %d%s: found %d, %s %d, in %v\n", how, r.Run, state, r.Found(), purged, r.Purged,
		time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond))
	for _, part := range r.Left {
		fmt.Fprintf(&b, "  left to another process that is at it: %s\n", part)
	}
	for _, what := range slices.Sorted(maps.Keys(r.Looked)) {
		fmt.Fprintf(&b, "  looked at %d %s\n", r.Looked[what], what)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Findings)) {
		f := r.Findings[kind]
		more := ""
		if len(f.IDs) < f.Found {
			more = ", ..."
		}
		fmt.Fprintf(&b, "  %s: found %d, mended %d: %s%s\n", kind, f.Found, f.Mended, strings.Join(f.IDs, ", "), more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
