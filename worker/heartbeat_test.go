package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

// What others read of a worker is what it knows of the broker.
func TestWorker_SaysInTheDatabaseHowItIs(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{Strategy: rabbitmq.Hold}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, repeat(3)...)
	var said outbox.Peer
	require.Eventually(t, func() bool {
		peers, err := p.store.Peers(t.Context())
		require.NoError(t, err)
		if len(peers) == 1 {
			said = peers[0]
		}
		return said.Connected && said.Finished == 3 && said.Published == 3 && len(said.Queues) == 1
	}, patience, tick)
	require.Equal(t, "hold", said.Strategy)
	require.Equal(t, "it was asked for", said.Why)
	require.Equal(t, w.Readiness(t.Context()).Publisher.Epoch, said.Epoch)
	require.False(t, said.Blocked)
	require.Empty(t, said.Reason)
	require.False(t, said.Since.IsZero())
	require.Equal(t, topic, said.Queues[0].Topic)
}

func TestWorker_SaysWhyItIsNotConnected(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://guest:secret@127.0.0.1:1/", devtest.Namespace(t, topic))
	p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool {
		peers, err := p.store.Peers(t.Context())
		require.NoError(t, err)
		return len(peers) == 1 && !peers[0].Connected && peers[0].Reason != "" && !peers[0].Since.IsZero()
	}, patience, tick)
	peers, err := p.store.Peers(t.Context())
	require.NoError(t, err)
	require.Contains(t, peers[0].Reason, "connection refused")
	require.NotContains(t, peers[0].Reason, "secret")
	require.Empty(t, peers[0].Queues)
}
