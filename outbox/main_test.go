package outbox_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/outboxtest"
)

func TestMain(m *testing.M) {
	// gorm starts it for a handle with prepared statements and has no call that ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

const wait = time.Minute

// ledger is a store on a database of the test's own.
type ledger struct {
	*outbox.Store
	db *gorm.DB
}

func newLedger(t *testing.T, cfg outbox.StoreConfig) ledger {
	t.Helper()
	return openLedger(t, devtest.Database(t), cfg)
}

func openLedger(t *testing.T, dsn string, cfg outbox.StoreConfig) ledger {
	t.Helper()
	db, err := database.Open(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool, err := db.DB()
		require.NoError(t, err)
		require.NoError(t, pool.Close())
	})
	require.NoError(t, database.Migrate(t.Context(), db, database.Set{Table: "goose_outbox", Files: outbox.Migrations}))
	store, err := outbox.NewStore(db, cfg)
	require.NoError(t, err)
	return ledger{store, db}
}

func (l ledger) enqueue(t *testing.T, m outbox.Message) outbox.Message {
	t.Helper()
	if m.Topic == "" {
		m.Topic = "test"
	}
	require.NoError(t, l.db.Transaction(func(tx *gorm.DB) error { return l.Enqueue(t.Context(), tx, &m) }))
	return m
}

func (l ledger) tx(t *testing.T, fn func(tx *gorm.DB) error) {
	t.Helper()
	require.NoError(t, l.db.Transaction(fn))
}

func (l ledger) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	require.NoError(t, l.db.Exec(query, args...).Error)
}

func (l ledger) count(t *testing.T, where string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, l.db.Raw("SELECT COUNT(*) FROM outbox_messages WHERE "+where, args...).Scan(&n).Error)
	return n
}

func (l ledger) record(t *testing.T, id int64) outbox.Record {
	t.Helper()
	r, err := l.LookupID(t.Context(), id)
	require.NoError(t, err)
	return r
}

// delivery is what a consumer would get of the message as it is now.
func (l ledger) delivery(t *testing.T, id int64) outbox.Delivery {
	t.Helper()
	r := l.record(t, id)
	store, err := l.StoreID(t.Context())
	require.NoError(t, err)
	return outbox.Delivery{
		Store: store, ID: id, Topic: r.Topic, Key: r.Key, Generation: r.Generation, Attempt: r.Attempts, DueAt: r.DueAt,
	}
}

// effects counts how often each message took effect, in the effect's own transaction.
func (l ledger) effects(t *testing.T) func(tx *sql.Tx, id int64) error {
	t.Helper()
	l.exec(t, "CREATE TABLE IF NOT EXISTS effects (message BIGINT NOT NULL, at DATETIME(6) NOT NULL)")
	return func(tx *sql.Tx, id int64) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO effects VALUES (?, UTC_TIMESTAMP(6))", id)
		return err
	}
}

func (l ledger) scalar(t *testing.T, query string) int {
	t.Helper()
	var n int
	require.NoError(t, l.db.Raw(query).Scan(&n).Error)
	return n
}

// start runs a relay until the test ends or the returned function is called.
func (l ledger) start(t *testing.T, publisher outbox.Publisher, cfg outbox.RelayConfig) (stop func()) {
	t.Helper()
	if cfg.Owner == "" {
		cfg.Owner = "relay"
	}
	relay, err := outbox.NewRelay(l.Store, publisher, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

func newBroker(t *testing.T) *outboxtest.Broker {
	t.Helper()
	b := outboxtest.NewBroker(50_000)
	t.Cleanup(b.Close)
	return b
}

// consume handles everything that fires with effect, until the broker is closed.
func (l ledger) consume(t *testing.T, b *outboxtest.Broker, workers int, effect func(tx *sql.Tx, d outbox.Delivery) error) {
	t.Helper()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for d := range b.Fired() {
				_, err := l.SQL().Handle(context.Background(), d, func(tx *sql.Tx) error { return effect(tx, d) })
				if err != nil {
					t.Errorf("handle message %d: %v", d.ID, err)
				}
			}
		})
	}
	t.Cleanup(func() {
		b.Close()
		wg.Wait()
	})
}

func eventually(t *testing.T, why string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, wait, 10*time.Millisecond, why)
}

func longText(n int) string { return strings.Repeat("x", n) }

func devDSN(t *testing.T) string {
	t.Helper()
	return devtest.Database(t)
}
