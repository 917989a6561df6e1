package worker

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/tracing"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// Effect is what messages of a topic do, in the guard's transaction tx. It must do its database work through tx and may be
// run again when the transaction loses a deadlock. An error rolls back, and the message is tried again after a pause. An effect
// must return when ctx ends, after 30 s at the latest; see outbox.Store.Handle for what becomes of one that does not.
type Effect func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error

// BatchEffect is what many messages of a topic do together, in one transaction tx: those that have come due while the workers were at
// others, up to Config.Batch, or one alone. It is an Effect otherwise, but for many its ctx ends after 5 s. An error rolls all of them back, and they are tried in smaller groups
// until the one that is to blame is alone; see outbox.Store.HandleBatch.
type BatchEffect func(ctx context.Context, tx *gorm.DB, ds []outbox.Delivery) error

// Routine is something to be done by the clock. At most one run of it is under way in a worker; a tick that finds one is
// skipped. A run that panics or returns an error is logged, and the next tick runs it again.
type Routine struct {
	Name string
	// Schedule is five cron fields in UTC, or a descriptor such as "@every 30s".
	Schedule string
	// Run must return soon after ctx ends.
	Run func(ctx context.Context) error
}

// Config tunes a Worker. The zero value is usable.
type Config struct {
	// HTTPAddr is where /healthz, /readyz and /metrics are answered. Default 127.0.0.1:9090.
	HTTPAddr string
	// AdminToken is the bearer token that /metrics asks for. Empty: none.
	AdminToken string
	// TLS has the listener speak TLS. Default: it does not.
	TLS *tls.Config
	// ClientCertificates has only those read /metrics who have shown a certificate that TLS verifies.
	ClientCertificates bool
	// BrokerTLS is rabbitmq.Config.TLS.
	BrokerTLS *tls.Config
	// Namespace begins the name of everything on the broker. Default "duebox".
	Namespace string
	// QueueType is the kind of the work queues. Default rabbitmq.Quorum.
	QueueType rabbitmq.QueueType
	// Strategy is how messages come to fire. Default rabbitmq.Auto.
	Strategy rabbitmq.Strategy
	// Tiers are those of rabbitmq.PublisherConfig.
	Tiers []time.Duration
	// Horizon and Grace are those of outbox.RelayConfig.
	Horizon, Grace time.Duration
	// MaxAttempts, Backoff and Retention are those of outbox.StoreConfig.
	MaxAttempts int
	Backoff     func(attempts int) time.Duration
	Retention   time.Duration
	// BatchEffects are what messages of further topics do, many at a time.
	BatchEffects map[string]BatchEffect
	// Workers is how many effects run at a time, for each topic, Batch how many messages a BatchEffect is given at most, and Prefetch how
	// many deliveries of a topic the broker gives out ahead of their acknowledgement. Defaults: those of rabbitmq.ConsumerConfig.
	Workers, Batch, Prefetch int
	// DrainTimeout is how long Run may take to finish what is in flight when its context has ended. Default 20 s.
	DrainTimeout time.Duration
	// ReconcileSchedule is when the reconciler makes a pass, and beside it a purge, see Routine. Default: each minute.
	ReconcileSchedule string
	// AuditSchedule is when it audits, see outbox.Scope. Default: each night at 03:17.
	AuditSchedule string
	// Checks are the application's part of an audit.
	Checks []outbox.Check
	// Routines are done besides.
	Routines []Routine
	// Registry gets the metrics, and is what /metrics shows. Default: a new one.
	Registry *prometheus.Registry
	// Tracer makes spans of publications, deliveries and effects, in the traces that messages name. Default: none.
	Tracer trace.Tracer
	// Log receives what an operator should know, and at level debug each delivery, with its message's id and key. Default: discarded.
	Log *slog.Logger
}

// Worker runs once.
type Worker struct {
	cfg        Config
	log        *slog.Logger
	repeats    repeats
	pool       *sql.DB
	topics     []string
	store      *outbox.Store
	publisher  *rabbitmq.Publisher
	relay      *outbox.Relay
	consumer   *rabbitmq.Consumer
	reconciler *outbox.Reconciler
	routines   []timed
	metrics    *metrics
	connected  chan struct{} // the publisher has a new connection; capacity 1
	draining   atomic.Bool
	published  atomic.Int64 // since New
	finished   atomic.Int64
}

// New returns a worker on db, which must hold the tables of outbox.Migrations and whose sessions must run READ COMMITTED,
// and on the broker at amqpURL. What the messages of each topic do is in effects, or in Config.BatchEffects. It does no I/O.
func New(db *gorm.DB, amqpURL string, effects map[string]Effect, cfg Config) (*Worker, error) {
	if db == nil || len(effects)+len(cfg.BatchEffects) == 0 {
		return nil, errors.New("worker: a database handle and at least one effect, or batch effect, are required")
	}
	for topic, effect := range effects {
		if _, ok := cfg.BatchEffects[topic]; ok {
			return nil, fmt.Errorf("worker: topic %.80q has an effect and a batch effect", topic)
		}
		if effect == nil {
			return nil, fmt.Errorf("worker: the effect of topic %.80q is nil", topic)
		}
	}
	for topic, effect := range cfg.BatchEffects {
		if effect == nil {
			return nil, fmt.Errorf("worker: the batch effect of topic %.80q is nil", topic)
		}
	}
	setDefaults(&cfg)
	if cfg.DrainTimeout < 0 {
		return nil, fmt.Errorf("worker: DrainTimeout is %v, below zero", cfg.DrainTimeout)
	}
	w := &Worker{cfg: cfg, log: cfg.Log, connected: make(chan struct{}, 1)}
	var err error
	if w.pool, err = db.DB(); err != nil {
		return nil, fmt.Errorf("worker: take the connection pool: %w", err)
	}
	if w.metrics, err = newMetrics(cfg.Registry); err != nil {
		return nil, fmt.Errorf("worker: register metrics: %w", err)
	}
	w.store, err = outbox.NewStore(db, outbox.StoreConfig{
		MaxAttempts: cfg.MaxAttempts, Backoff: cfg.Backoff, Retention: cfg.Retention, Enqueuing: tracing.Enqueuing(cfg.Tracer), Observer: w.ledger(),
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if err := w.connectors(amqpURL, effects); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if w.routines, err = parseRoutines(append(w.reconciling(), cfg.Routines...)); err != nil {
		return nil, err
	}
	return w, w.metrics.watch(cfg.Registry, w)
}

func setDefaults(cfg *Config) {
	for field, fallback := range map[*string]string{
		&cfg.HTTPAddr: "127.0.0.1:9090", &cfg.Namespace: "duebox", &cfg.ReconcileSchedule: "* * * * *",
		&cfg.AuditSchedule: "17 3 * * *",
	} {
		if *field == "" {
			*field = fallback
		}
	}
	if cfg.Grace == 0 {
		cfg.Grace = 30 * time.Second
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 20 * time.Second
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

// connectors makes what speaks to the broker, and the reconciler, which asks it about queues.
func (w *Worker) connectors(amqpURL string, effects map[string]Effect) error {
	cfg := w.cfg
	broker, err := rabbitmq.NewBroker(amqpURL, rabbitmq.Config{
		Namespace: cfg.Namespace, TLS: cfg.BrokerTLS, QueueType: cfg.QueueType, Log: cfg.Log, Observer: w.observer(),
	})
	if err != nil {
		return err
	}
	topics := slices.Sorted(maps.Keys(effects))
	topics = append(topics, slices.Sorted(maps.Keys(cfg.BatchEffects))...)
	w.topics = topics
	w.publisher, err = rabbitmq.NewPublisher(broker, w.store, rabbitmq.PublisherConfig{Strategy: cfg.Strategy, Tiers: cfg.Tiers, Topics: topics})
	if err != nil {
		return err
	}
	w.relay, err = outbox.NewRelay(w.store, tracing.Publisher(cfg.Tracer, w.publisher), outbox.RelayConfig{
		Horizon: cfg.Horizon, Reach: w.publisher.Reach, Grace: cfg.Grace, DrainTimeout: cfg.DrainTimeout / 2,
		Heartbeat: w.heartbeat, Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	w.reconciler, err = outbox.NewReconciler(w.store, outbox.ReconcileConfig{
		Grace: cfg.Grace, Reach: w.publisher.Reach, Depth: broker.Depth, Checks: cfg.Checks, Owner: w.relay.Owner(), Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	w.metrics.preset(cfg.Namespace, topics, cfg.Checks)
	effects = maps.Clone(effects)
	batches := make(map[string]func(context.Context, []outbox.Delivery) []error, len(cfg.BatchEffects))
	for topic, effect := range cfg.BatchEffects {
		batches[topic] = func(ctx context.Context, ds []outbox.Delivery) []error { return w.handleBatch(ctx, ds, effect) }
	}
	w.consumer, err = rabbitmq.NewConsumer(broker, topics, rabbitmq.Handlers{
		Handle: func(ctx context.Context, d outbox.Delivery) error { return w.handle(ctx, d, effects[d.Topic]) },
		Batch:  batches,
		Unrouted: func(ctx context.Context, d outbox.Delivery) error {
			err := w.store.Unrouted(ctx, d)
			if err == nil {
				w.logForeign(ctx, d)
			}
			return err
		},
		Keep:  w.store.Keep,
		Ready: w.askDatabase,
	}, rabbitmq.ConsumerConfig{Workers: cfg.Workers, Batch: cfg.Batch, Prefetch: cfg.Prefetch, DrainTimeout: cfg.DrainTimeout * 3 / 8})
	return err
}

// ledger counts what the store reports, and logs what an operator should look into.
func (w *Worker) ledger() outbox.Observer {
	o := w.metrics.ledger()
	counted := o
	o.Published = func(topic string, confirm time.Duration, err error) {
		counted.Published(topic, confirm, err)
		if err == nil {
			w.published.Add(1)
		}
	}
	o.Delivered = func(topic string, outcome outbox.Outcome, lateness time.Duration) {
		counted.Delivered(topic, outcome, lateness)
		if outcome == outbox.OutcomeDone {
			w.finished.Add(1)
		}
	}
	o.Attempted = w.logAttempted
	o.Overran = func(topic string, n int) {
		counted.Overran(topic, n)
		if n > 0 {
			w.log.Error("an effect did not return and is given up; its goroutine runs on", slog.String("topic", topic))
		}
	}
	return o
}

// heartbeat is what the worker writes into outbox_relays each few seconds, for those who cannot ask it.
func (w *Worker) heartbeat() outbox.Heartbeat {
	s := w.publisher.State()
	return outbox.Heartbeat{
		Strategy: string(s.Strategy), Why: s.Why, Epoch: s.Epoch, Connected: s.Connected, Blocked: s.Blocked, Reason: s.Reason, Since: s.Since,
		Queues: w.consumer.Queues(), Published: w.published.Load(), Finished: w.finished.Load(),
	}
}

// observer is told what happens to connections: each new one for publishing may be to a broker that has lost what it held.
func (w *Worker) observer() rabbitmq.Observer {
	o := w.metrics.broker()
	count := o.Connected
	o.Connected = func(role string) {
		count(role)
		if role == rabbitmq.RolePublisher {
			select {
			case w.connected <- struct{}{}:
			default: // one is waiting to be heard
			}
		}
	}
	return o
}
