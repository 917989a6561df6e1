package rabbitmq_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/outboxtest"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func TestConformance_Plugin(t *testing.T) {
	t.Parallel()
	conformance(t, rabbitmq.Plugin, rabbitmq.Hold)
}

func TestConformance_Hold(t *testing.T) {
	t.Parallel()
	conformance(t, rabbitmq.Hold, rabbitmq.Plugin)
}

func TestConformance_Tiers(t *testing.T) {
	t.Parallel()
	conformance(t, rabbitmq.Tiers, rabbitmq.Plugin)
}

// bulk is held by a test that moves thousands of messages: it takes what the machine can do, and says how late they are.
var bulk sync.Mutex

// conformance runs the suite on a broker of its own, which it restarts and blocks, with one strategy, and a switch to another.
func conformance(t *testing.T, one, other rabbitmq.Strategy) {
	t.Helper()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	watermark := func(share string) func() {
		return func() {
			_, err := server.Ctl(t.Context(), "set_vm_memory_high_watermark", share)
			require.NoError(t, err)
		}
	}
	thousands := func(t *testing.T) bool {
		t.Helper()
		return strings.HasSuffix(t.Name(), "/ten_thousand_at_once") || strings.HasSuffix(t.Name(), "/switch")
	}
	database := func(t *testing.T) *gorm.DB {
		t.Helper()
		if thousands(t) {
			bulk.Lock()
			t.Cleanup(bulk.Unlock)
		}
		return emptyLedger(t)
	}
	outboxtest.Conformance(t, database, func(t *testing.T, store *outbox.Store, h outboxtest.Handlers) outboxtest.Side {
		t.Helper()
		b := at(t, server.URL(), rabbitmq.Config{Namespace: devtest.NamespaceOn(t, server.URL(), outboxtest.Topic)})
		p := &switching{open: func(s rabbitmq.Strategy) (*rabbitmq.Publisher, func() error) {
			p, err := rabbitmq.NewPublisher(b, store, rabbitmq.PublisherConfig{
				Strategy: s, Tiers: []time.Duration{time.Second, 3 * time.Second, 6 * time.Second}, Topics: []string{outboxtest.Topic},
			})
			require.NoError(t, err)
			return p, run(t, p)
		}}
		p.use(t, one)
		handlers := rabbitmq.Handlers{Handle: h.Handle, Unrouted: h.Unrouted, Keep: func(context.Context, outbox.Stray) error { return nil }}
		if thousands(t) {
			handlers.Batch = map[string]func(context.Context, []outbox.Delivery) []error{outboxtest.Topic: h.Batch}
		}
		c, err := rabbitmq.NewConsumer(b, []string{outboxtest.Topic}, handlers, rabbitmq.ConsumerConfig{})
		require.NoError(t, err)
		run(t, c)
		requireConsuming(t, c)
		return outboxtest.Side{
			Publisher: p, Reach: func() outbox.Reach { return p.now.Load().Reach() }, Depth: b.Depth,
			Restart: func() {
				devtest.Settle(t, server)
				require.NoError(t, server.Kill())
				require.NoError(t, server.Start(t.Context()))
			},
			Block: watermark("0.0000001"), Unblock: watermark("0.6"),
			Switch: func() { p.use(t, other) },
			Late:   3 * time.Second, Burst: 2 * time.Minute, // the machine has other tests to run; how late they are is measured by make bench
		}
	})
}

func emptyLedger(t *testing.T) *gorm.DB {
	t.Helper()
	db, err := database.Open(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, database.Migrate(t.Context(), db, database.Set{Table: "goose_outbox", Files: outbox.Migrations}))
	return db
}

// switching is a publisher whose strategy changes, as it does when workers are restarted with another setting.
type switching struct {
	open func(s rabbitmq.Strategy) (p *rabbitmq.Publisher, stop func() error)
	now  atomic.Pointer[life]
}

// life is one of its publishers.
type life struct {
	*rabbitmq.Publisher
	over chan struct{} // closed when it ends
	stop func() error
}

func (s *switching) use(t *testing.T, strategy rabbitmq.Strategy) {
	t.Helper()
	if old := s.now.Load(); old != nil {
		close(old.over)
		require.NoError(t, old.stop())
	}
	p, stop := s.open(strategy)
	s.now.Store(&life{p, make(chan struct{}), stop})
	require.Eventually(t, func() bool { return p.State().Connected }, patience, tick)
}

// Publish waits for no publisher that has ended: nobody would call it.
func (s *switching) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	now := s.now.Load()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-now.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return now.Publish(ctx, batch)
}
