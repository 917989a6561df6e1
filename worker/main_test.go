package worker_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(doomVariable); text != "" {
		doomed(text)
	}
	goleak.VerifyTestMain(m)
}

const (
	// How long a test waits for what has to happen.
	patience = 2 * time.Minute
	tick     = 50 * time.Millisecond
	topic    = "test"
)

// place is a database and a namespace of the test's own, and workers on them.
type place struct {
	db        *gorm.DB
	pool      *sql.DB
	store     *outbox.Store
	amqpURL   string
	namespace string
	doom      doom // a worker process on it
}

// newPlace uses the shared broker.
func newPlace(t *testing.T, topics ...string) *place {
	t.Helper()
	return newPlaceOn(t, devtest.AMQP(t), devtest.Namespace(t, topics...))
}

func newPlaceOn(t *testing.T, amqpURL, namespace string) *place {
	t.Helper()
	return newPlaceWith(t, devtest.Database(t), amqpURL, namespace)
}

func newPlaceWith(t *testing.T, dsn, amqpURL, namespace string) *place {
	t.Helper()
	db, err := database.Open(t.Context(), dsn)
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, database.Migrate(t.Context(), db,
		database.Set{Table: "goose_outbox", Files: outbox.Migrations},
		database.Set{Table: "goose_orders", Files: ordering.Migrations}))
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	require.NoError(t, err)
	return &place{db: db, pool: pool, store: store, amqpURL: amqpURL, namespace: namespace, doom: doom{DSN: dsn, URL: amqpURL, Namespace: namespace}}
}

// start runs a worker. It drains when the returned function is called, which gives Run's error, or at the end of the test.
func (p *place) start(t *testing.T, cfg worker.Config, effects map[string]worker.Effect) (*worker.Worker, func() error) {
	t.Helper()
	cfg.HTTPAddr, cfg.Namespace = "127.0.0.1:0", p.namespace
	w, err := worker.New(p.db, p.amqpURL, effects, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			t.Error("the worker did not end")
			return nil
		}
	}
	t.Cleanup(func() { require.NoError(t, stop()) })
	return w, stop
}

func (p *place) enqueue(t *testing.T, messages ...outbox.Message) []int64 {
	t.Helper()
	ids := make([]int64, len(messages))
	require.NoError(t, p.db.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
		for i, m := range messages {
			if m.Topic == "" {
				m.Topic = topic
			}
			if err := p.store.Enqueue(t.Context(), tx, &m); err != nil {
				return err
			}
			ids[i] = m.ID
		}
		return nil
	}))
	return ids
}

// repeat is n messages that are due at once.
func repeat(n int) []outbox.Message {
	all := make([]outbox.Message, n)
	for i := range all {
		all[i] = outbox.Message{Topic: topic, Payload: []byte("x")}
	}
	return all
}

func (p *place) exec(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	res, err := p.pool.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	return n
}

func (p *place) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, p.pool.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

func (p *place) inState(t *testing.T, state outbox.State) int {
	t.Helper()
	return p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE state = ?`, string(state))
}

// written is an effect that leaves a row for each time it was committed.
func written(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
	return tx.WithContext(ctx).Exec(`INSERT INTO effects (message_id, generation, effected_at) VALUES (?, ?, UTC_TIMESTAMP(6))`,
		d.ID, d.Generation).Error
}

// requireOnce: each message took effect, none twice, none early.
func (p *place) requireOnce(t *testing.T, messages int) {
	t.Helper()
	require.Equal(t, messages, p.count(t, `SELECT COUNT(*) FROM effects`), "effects")
	require.Equal(t, messages, p.count(t, `SELECT COUNT(DISTINCT message_id) FROM effects`), "messages with an effect")
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message_id WHERE e.effected_at < m.due_at`), "early")
}

// ready tells whether the worker does its work.
func ready(t *testing.T, w *worker.Worker) func() bool {
	t.Helper()
	return func() bool { return w.Readiness(t.Context()).Status == "ready" }
}
