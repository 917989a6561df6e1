package outbox_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/outboxtest"
)

// The broker in memory keeps what the real ones promise.
func TestConformance_BrokerInMemory(t *testing.T) {
	t.Parallel()
	empty := func(t *testing.T) *gorm.DB {
		t.Helper()
		return newLedger(t, outbox.StoreConfig{}).db
	}
	outboxtest.Conformance(t, empty, func(t *testing.T, store *outbox.Store, h outboxtest.Handlers) outboxtest.Side {
		t.Helper()
		var (
			blocked, held atomic.Bool
			epoch         int64
			serving       sync.WaitGroup
		)
		b := outboxtest.NewBroker(100_000)
		b.Refuse = func(outbox.Publication) error {
			if blocked.Load() {
				return outbox.ErrNacked
			}
			return nil
		}
		for range 8 {
			serving.Go(func() {
				for d := range b.Fired() {
					handle := h.Handle
					if d.Topic != outboxtest.Topic {
						handle = h.Unrouted
					}
					if err := handle(t.Context(), d); err != nil && t.Context().Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		t.Cleanup(func() {
			b.Close()
			serving.Wait()
		})
		return outboxtest.Side{
			Publisher: b,
			Reach: func() outbox.Reach {
				if held.Load() {
					return outbox.Reach{}
				}
				return outbox.Reach{UpTo: time.Hour}
			},
			Switch: func() { held.Store(true) },
			Restart: func() {
				next, err := store.Raise(t.Context(), epoch, true)
				require.NoError(t, err)
				epoch = next
				b.Lose(next)
			},
			Block:   func() { blocked.Store(true) },
			Unblock: func() { blocked.Store(false) },
			Late:    3 * time.Second, // the machine has other tests to run
			Burst:   2 * time.Minute,
		}
	})
}
