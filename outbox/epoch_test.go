package outbox_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestRaise_IsDoneOnceByAllWhoKnowTheSameEpoch(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for from, empty := range []bool{true, false, true} {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				epoch, err := l.Raise(t.Context(), int64(from), empty)
				if err != nil || epoch != int64(from)+1 {
					t.Errorf("epoch %d, error %v", epoch, err)
				}
			})
		}
		all.Wait()
		epoch, err := l.Epoch(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(from)+1, epoch)
	}
	require.Equal(t, 3, l.scalar(t, "SELECT empty_epoch FROM outbox_meta"))
	epoch, err := l.Raise(t.Context(), 1, true)
	require.NoError(t, err)
	require.Equal(t, int64(3), epoch, "who comes late learns what is in force")
	require.Equal(t, 3, l.scalar(t, "SELECT empty_epoch FROM outbox_meta"))
}
