package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

func newWorker() *cobra.Command {
	var level string
	c := &cobra.Command{
		Use:   "worker",
		Short: "Hand messages to the broker, commit their effects, reconcile",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runWorker(c, level)
		},
	}
	c.Flags().StringVar(&level, "log-level", "info", "what is logged: debug (each delivery), info, warn or error")
	return c
}

func runWorker(c *cobra.Command, level string) error {
	cfg, err := load("MYSQL_DSN", "AMQP_URL")
	if err != nil {
		return err
	}
	log, err := newLog(c.ErrOrStderr(), level)
	if err != nil {
		return fail(cannotBegin, err)
	}
	tracer, stopTracing, err := startTracing(c.Context(), "duebox-worker", log)
	if err != nil {
		return err
	}
	defer stopTracing()
	db, closeDB, err := openDatabase(c, cfg, cfg.MigrateOnStart)
	if err != nil {
		return fail(wentWrong, err)
	}
	defer closeDB()
	store, err := outbox.NewStore(db, outbox.StoreConfig{Retention: cfg.Retention, MaxAttempts: cfg.MaxAttempts})
	if err != nil {
		return fail(wentWrong, err)
	}
	registry := newRegistry()
	shop, err := newShop(db, store, cfg, countOrders(registry))
	if err != nil {
		return fail(wentWrong, err)
	}
	listener, err := listenerTLS(c, cfg, log)
	if err != nil {
		return fail(cannotBegin, err)
	}
	encrypt, err := brokerTLS(c, cfg, log)
	if err != nil {
		return fail(cannotBegin, err)
	}
	w, err := worker.New(db, cfg.AMQPURL.Reveal(), map[string]worker.Effect{model.TopicRemind: shop.Remind}, worker.Config{
		BatchEffects: map[string]worker.BatchEffect{model.TopicExpire: shop.ExpireAll},
		TLS:          listener, ClientCertificates: cfg.TLSClientCAFile != "", BrokerTLS: encrypt,
		HTTPAddr: cfg.WorkerHTTPAddr, AdminToken: cfg.AdminToken.Reveal(),
		Namespace: cfg.Namespace, Strategy: rabbitmq.Strategy(cfg.DelayStrategy), Tiers: cfg.DelayTiers,
		Horizon: cfg.Horizon, Grace: cfg.Grace, MaxAttempts: cfg.MaxAttempts, Retention: cfg.Retention,
		Workers: cfg.Workers, Prefetch: cfg.Prefetch, DrainTimeout: cfg.DrainTimeout,
		ReconcileSchedule: cfg.ReconcileSchedule, AuditSchedule: cfg.AuditSchedule, Checks: shop.Checks(),
		Routines: []worker.Routine{{Name: "forget idempotency keys and effects", Schedule: "@hourly", Run: func(ctx context.Context) error {
			_, err := shop.Forget(ctx)
			return err
		}}},
		Registry: registry, Tracer: tracer, Log: log,
	})
	if err != nil {
		return fail(cannotBegin, err)
	}
	if pool, err := db.DB(); err == nil {
		warnOfTables(c.Context(), pool, log)
	}
	return fail(wentWrong, listening("WORKER_HTTP_ADDR", drained(c.Context(), cfg.DrainTimeout, w.Run)))
}
