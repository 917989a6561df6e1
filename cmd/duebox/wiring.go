package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/duebox/duebox/config"
	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/internal/tracing"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// migrateLimit bounds bringing the schema up to date, the wait for others who do it included.
const migrateLimit = 10 * time.Minute

// openLimit bounds the first answer of the database.
const openLimit = 30 * time.Second

// openDatabase opens the database and, if wanted, brings its schema up to date. The caller closes it.
func openDatabase(c *cobra.Command, cfg config.Config, migrate bool) (db *gorm.DB, closeDB func(), err error) {
	log, err := newLog(c.ErrOrStderr(), "warn")
	if err != nil {
		return nil, nil, err
	}
	encrypt, err := databaseTLS(c, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	ctx := c.Context()
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if db, err = database.OpenTLS(opening, cfg.MySQLDSN.Reveal(), encrypt); err != nil {
		return nil, nil, err
	}
	closeDB = func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	}
	if pool, err := db.DB(); err == nil {
		pool.SetMaxOpenConns(connections(topics * cfg.Workers))
	}
	if migrate {
		migrating, cancel := context.WithTimeout(ctx, migrateLimit)
		defer cancel()
		if err := database.Migrate(migrating, db, sets()...); err != nil {
			closeDB()
			return nil, nil, err
		}
	}
	return db, closeDB, nil
}

// topics is how many topics have effects: each has WORKERS.
const topics = 2

// connections is how many a process may open: one for each effect, and what relay, settler, reconciler, audits and probes need besides. An
// effect that waits for a connection would use up its deadline.
func connections(effects int) int {
	const usual, besides = 50, 20
	return max(usual, effects+besides)
}

func sets() []database.Set {
	return []database.Set{
		{Table: "goose_outbox", Files: outbox.Migrations},
		{Table: "goose_orders", Files: ordering.Migrations},
	}
}

// newShop has happened told what becomes of orders; nil: nobody.
func newShop(db *gorm.DB, store *outbox.Store, cfg config.Config, happened func(ordering.Outcome, int64)) (*ordering.Service, error) {
	return ordering.New(db, store, ordering.Config{
		Normal: cfg.OrderTimeoutNormal, Flash: cfg.OrderTimeoutFlash, Presale: cfg.OrderTimeoutPresale,
		RemindBefore: cfg.OrderRemindBefore, Retention: cfg.Retention, Happened: happened,
	})
}

// newOperator is what the API and the commands for operators call: both let the same through.
func newOperator(store *outbox.Store, shop *ordering.Service, cfg config.Config) *outbox.Operator {
	return store.Operator(outbox.OperatorConfig{Grace: cfg.Grace, Protect: shop.Protect})
}

// newRegistry holds what every process shows of itself.
func newRegistry() *prometheus.Registry {
	version, revision := build()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "duebox_build_info", Help: "1, with what was built.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "go_version": runtime.Version()},
	})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// countOrders shows in r what becomes of orders in this process: what callers do in the API, what effects do in the worker.
func countOrders(r prometheus.Registerer) func(what ordering.Outcome, n int64) {
	orders := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "duebox_orders_total", Help: "What has become of orders: placed, paid, closed, extended, reminded of, and refunds of money that they could not take.",
	}, []string{"outcome"})
	r.MustRegister(orders)
	for _, what := range ordering.Outcomes() {
		orders.WithLabelValues(string(what))
	}
	return func(what ordering.Outcome, n int64) { orders.WithLabelValues(string(what)).Add(float64(n)) }
}

// linkedVersion is set by the linker: -X main.linkedVersion=...
var linkedVersion string

// build is the version of this program and the commit that it was built from; "unknown" where the build did not say.
func build() (version, revision string) {
	version, revision = linkedVersion, "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(version, "unknown"), revision
	}
	version = cmp.Or(version, info.Main.Version, "unknown")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}

// newLog writes JSON lines from the given level on.
func newLog(w io.Writer, level string) (*slog.Logger, error) {
	var from slog.Level
	if err := from.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: is %.40q, want debug, info, warn or error", level)
	}
	return slog.New(tracing.NewHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: from}))), nil
}

// startTracing traces this process if the environment says where to; stop hands over the last spans.
func startTracing(ctx context.Context, service string, log *slog.Logger) (tracer trace.Tracer, stop func(), err error) {
	version, _ := build()
	tracer, stop, err = tracing.Start(ctx, service, version, log)
	return tracer, stop, fail(cannotBegin, err)
}

// drained runs part until ctx ends and then gives it limit to return, and some seconds more: what hangs then is left to die
// with the process.
func drained(ctx context.Context, limit time.Duration, part func(context.Context) error) error {
	const grace = 5 * time.Second
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(limit + grace)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return errors.New("not everything in flight was finished within DRAIN_TIMEOUT")
	}
}

// listening names the setting in an error that says that its address cannot be listened on.
func listening(variable string, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "listen" {
		return fmt.Errorf("%s: %w", variable, err)
	}
	return err
}

// load reads the settings from the environment. What they say has been judged, also by those who take it, before anything is
// connected.
func load(required ...string) (config.Config, error) {
	cfg, err := config.Load(os.Environ(), required...)
	if err != nil {
		return cfg, fail(cannotBegin, err)
	}
	var found []error
	if cfg.MySQLDSN.IsSet() {
		if _, err := mysql.ParseDSN(cfg.MySQLDSN.Reveal()); err != nil {
			found = append(found, fmt.Errorf("MYSQL_DSN: %w", err)) // the driver's text does not repeat the DSN
		}
	}
	if cfg.AMQPURL.IsSet() {
		if _, err := rabbitmq.NewBroker(cfg.AMQPURL.Reveal(), rabbitmq.Config{Namespace: cfg.Namespace}); err != nil {
			found = append(found, fmt.Errorf("AMQP_URL: %w", err))
		}
	}
	return cfg, fail(cannotBegin, errors.Join(found...))
}
