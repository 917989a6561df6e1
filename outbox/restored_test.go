package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

// A database that is set back gives ids again which the broker has deliveries of.
func TestRestored_DeliveriesOfTheTimeThatIsGoneRunNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	kept := l.enqueue(t, outbox.Message{Topic: "t", Key: "kept"})
	l.exec(t, "UPDATE outbox_messages SET state = 'published', publishes = 1, published_at = UTC_TIMESTAMP(6), broker_epoch = 0")
	gone := l.enqueue(t, outbox.Message{Topic: "t", Key: "cart", Payload: []byte("gone")})
	ofGone, ofKept := l.delivery(t, gone.ID), l.delivery(t, kept.ID)
	// The backup was made before the second message.
	l.exec(t, "DELETE FROM outbox_messages WHERE id = ?", gone.ID)
	before, err := l.StoreID(t.Context())
	require.NoError(t, err)

	id, err := l.Restored(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, id)
	require.Equal(t, 1, l.scalar(t, "SELECT broker_epoch FROM outbox_meta"))
	require.Equal(t, 1, l.scalar(t, "SELECT empty_epoch FROM outbox_meta"), "with every strategy")
	l.exec(t, `INSERT INTO outbox_messages (id, topic, message_key, live_key, shard, state, due_at, available_at, content_type, payload, created_at)
		SELECT ?, topic, 'cart', 'cart', shard, 'scheduled', due_at, due_at, content_type, 'new', created_at FROM outbox_messages WHERE id = ?`, gone.ID, kept.ID)
	for _, d := range []outbox.Delivery{ofGone, ofKept} {
		outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error {
			t.Errorf("the effect of %s runs", d.Key)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeForeign, outcome)
	}
	require.Equal(t, 2, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted WHERE reason = 'foreign'"), "kept for an operator")

	r, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{Reach: func() outbox.Reach { return outbox.Reach{} }})
	require.NoError(t, err)
	_, _, err = r.Rearm(t.Context())
	require.NoError(t, err)
	require.Equal(t, outbox.Scheduled, l.record(t, kept.ID).State, "what was published is published again")
	runs := 0
	for _, m := range []int64{gone.ID, kept.ID} {
		d := l.delivery(t, m)
		require.Equal(t, id, d.Store)
		outcome, err := l.Handle(t.Context(), d, func(*gorm.DB) error { runs++; return nil })
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeDone, outcome)
	}
	require.Equal(t, 2, runs)
}

func TestRestored_NotWhileARelayLives(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	before, err := l.StoreID(t.Context())
	require.NoError(t, err)
	l.exec(t, "INSERT INTO outbox_relays (owner, seen_at) VALUES ('w', UTC_TIMESTAMP(6) - INTERVAL 50 SECOND)")
	_, err = l.Restored(t.Context())
	require.ErrorIs(t, err, outbox.ErrInUse)
	require.ErrorIs(t, l.Unused(t.Context()), outbox.ErrInUse)
	require.Equal(t, 0, l.scalar(t, "SELECT broker_epoch FROM outbox_meta"))
	l.exec(t, "UPDATE outbox_relays SET seen_at = UTC_TIMESTAMP(6) - INTERVAL 70 SECOND")
	require.NoError(t, l.Unused(t.Context()))
	id, err := l.Restored(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, id)
	again, err := l.Restored(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, id, again)
}
