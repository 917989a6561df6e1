package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/internal/tracing"
	"github.com/duebox/duebox/outbox"
)

func newAPI() *cobra.Command {
	var level string
	c := &cobra.Command{
		Use:   "api",
		Short: "Serve the HTTP API",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runAPI(c, level)
		},
	}
	c.Flags().StringVar(&level, "log-level", "info", "what is logged: debug, info, warn or error")
	return c
}

func runAPI(c *cobra.Command, level string) error {
	cfg, err := load("MYSQL_DSN")
	if err != nil {
		return err
	}
	log, err := newLog(c.ErrOrStderr(), level)
	if err != nil {
		return fail(cannotBegin, err)
	}
	tracer, stopTracing, err := startTracing(c.Context(), "duebox-api", log)
	if err != nil {
		return err
	}
	defer stopTracing()
	db, closeDB, err := openDatabase(c, cfg, cfg.MigrateOnStart)
	if err != nil {
		return fail(wentWrong, err)
	}
	defer closeDB()
	pool, err := db.DB()
	if err != nil {
		return fail(wentWrong, err)
	}
	registry := newRegistry()
	registry.MustRegister(collectors.NewDBStatsCollector(pool, "duebox"))
	store, err := outbox.NewStore(db, outbox.StoreConfig{Retention: cfg.Retention, MaxAttempts: cfg.MaxAttempts, Enqueuing: tracing.Enqueuing(tracer)})
	if err != nil {
		return fail(wentWrong, err)
	}
	shop, err := newShop(db, store, cfg, countOrders(registry))
	if err != nil {
		return fail(wentWrong, err)
	}
	listener, err := listenerTLS(c, cfg, log)
	if err != nil {
		return fail(cannotBegin, err)
	}
	server, err := api.New(api.Config{
		TLS: listener, ClientCertificates: cfg.TLSClientCAFile != "",
		Addr: cfg.HTTPAddr, APIToken: cfg.APIToken.Reveal(), AdminToken: cfg.AdminToken.Reveal(),
		JWTSecret: cfg.JWTSecret.Reveal(), JWKSFile: cfg.JWKSFile, JWTIssuer: cfg.JWTIssuer, JWTAudience: cfg.JWTAudience,
		Rate: cfg.RateLimit, RateUnknown: cfg.RateLimitUnknown,
		Registry: registry, Tracer: tracer, Log: log, DrainTimeout: cfg.DrainTimeout,
	}, shop, store.Direct(), newOperator(store, shop, cfg), func(ctx context.Context) error { return askTables(ctx, pool) })
	if err != nil {
		return fail(wentWrong, err)
	}
	warnOfTables(c.Context(), pool, log)
	return fail(wentWrong, listening("HTTP_ADDR", drained(c.Context(), cfg.DrainTimeout, server.Run)))
}
