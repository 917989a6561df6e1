package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func newReconcile() *cobra.Command {
	var (
		check, asJSON bool
		wait          time.Duration
	)
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Make one pass of the reconciler: find what the broker has lost and schedule it again",
		Long: `Make one pass of the reconciler: find what the broker has lost and schedule it again.

Exit codes: 0 the pass is complete, 2 it could not run, and with --check 1 if it has found anything.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			report, err := reconcile(c, wait)
			if err != nil {
				return fail(cannotBegin, err)
			}
			if err := printReport(c, report, asJSON); err != nil {
				return fail(cannotBegin, err)
			}
			if found := report.Rearmed + report.Repaired + report.Late + report.Dead; check && found > 0 {
				return fail(wentWrong, fmt.Errorf("the pass has found %d messages", found))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "exit with 1 if anything was found")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as a JSON object")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait while a worker makes a pass")
	return c
}

func reconcile(c *cobra.Command, wait time.Duration) (outbox.Report, error) {
	cfg, err := load("MYSQL_DSN", "AMQP_URL")
	if err != nil {
		return outbox.Report{}, err
	}
	log, err := newLog(c.ErrOrStderr(), "warn")
	if err != nil {
		return outbox.Report{}, err
	}
	db, closeDB, err := openDatabase(c.Context(), cfg, false)
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
	broker, err := rabbitmq.NewBroker(cfg.AMQPURL.Reveal(), rabbitmq.Config{Namespace: cfg.Namespace, Logger: log})
	if err != nil {
		return outbox.Report{}, err
	}
	reconciler, err := outbox.NewReconciler(store, outbox.ReconcileConfig{Grace: cfg.Grace, Depth: broker.Depth, Log: log})
	if err != nil {
		return outbox.Report{}, err
	}
	return alone(c.Context(), reconciler, wait)
}

// alone makes a pass, after the one that is under way elsewhere.
func alone(ctx context.Context, r *outbox.Reconciler, wait time.Duration) (outbox.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errors.New("another pass was under way all the time"))
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		report, err := r.Run(context.WithoutCancel(ctx))
		if err != nil || !report.Skipped {
			return report, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return report, context.Cause(ctx)
		}
	}
}

func printReport(c *cobra.Command, r outbox.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(r)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "re-armed %d, repaired %d, late %d, dead %d, purged %d, in %v\n",
		r.Rearmed, r.Repaired, r.Late, r.Dead, r.Purged, r.Took.Round(time.Millisecond))
	return err
}
