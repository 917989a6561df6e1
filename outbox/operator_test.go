package outbox_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestRequeue_GivesADeadMessageAnotherLife(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{MaxAttempts: 2, Backoff: func(int) time.Duration { return 0 }})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	var mended atomic.Bool
	l.consume(t, broker, 1, func(*sql.Tx, outbox.Delivery) error {
		if mended.Load() {
			return nil
		}
		return errEffect
	})
	m := l.enqueue(t, outbox.Message{Key: "1"})
	eventually(t, "is dead", func() bool { return l.record(t, m.ID).State == outbox.Dead })
	require.Equal(t, errEffect.Error(), l.record(t, m.ID).LastError)
	mended.Store(true)
	require.NoError(t, l.Requeue(t.Context(), m.ID))
	require.ErrorIs(t, l.Requeue(t.Context(), m.ID), outbox.ErrNoMessage, "it lives")
	require.ErrorIs(t, l.Requeue(t.Context(), 1<<40), outbox.ErrNoMessage)
	eventually(t, "takes effect", func() bool { return l.record(t, m.ID).State == outbox.Done })
	require.Empty(t, l.record(t, m.ID).LastError, "it was of the attempts before")
}
