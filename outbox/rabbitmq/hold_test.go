package rabbitmq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// A broker that need not have the delayed exchange takes what is due, and nothing before.
func TestHold_TakesMessagesAtTheirTimeOnly(t *testing.T) {
	t.Parallel()
	url := devtest.Plain(t)
	b := at(t, url, rabbitmq.Config{Namespace: devtest.NamespaceOn(t, url, topic)})
	p := publisher(t, b, rabbitmq.PublisherConfig{Strategy: rabbitmq.Hold, Topics: []string{topic}})
	require.Equal(t, rabbitmq.Hold, p.State().Strategy)
	require.Zero(t, p.Reach())
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
	for _, r := range p.Publish(t.Context(), publications(21, 5, time.Now().Add(time.Second))) {
		require.ErrorIs(t, r.Err, outbox.ErrTooSoon)
	}
	requireDepth(t, b, 20, 0)
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	require.Eventually(t, func() bool { return len(in.ids()) == 20 }, patience, tick)
}

// What lies in queues outlives a restart of the broker: that is a new life, but not an empty one.
func TestHold_ARestartIsNoLossAndAnEmptyDiskIs(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	p := checkingWith(t, b, e, rabbitmq.PublisherConfig{Topics: []string{topic}})
	requireEpoch(t, 1, p)
	s := p.State()
	require.Equal(t, rabbitmq.Hold, s.Strategy)
	require.Equal(t, "the broker has no exchanges of type x-delayed-message", s.Why)
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	requireEpoch(t, 2, p)
	require.Equal(t, []bool{true, false}, e.raised())
	require.NoError(t, server.Wipe())
	require.NoError(t, server.Start(t.Context()))
	requireEpoch(t, 3, p)
	require.Equal(t, []bool{true, false, true}, e.raised())
}

// The answer to the probe changes while the publisher runs.
func TestAuto_MovesOverWhenThePluginGoesAndComes(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	p := checkingWith(t, b, e, rabbitmq.PublisherConfig{Topics: []string{topic}})
	requireEpoch(t, 1, p)
	require.Equal(t, rabbitmq.Plugin, p.State().Strategy)
	require.Positive(t, p.Reach().UpTo)
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now().Add(time.Hour))))

	require.NoError(t, server.SetPlugin(t.Context(), false))
	requireEpoch(t, 2, p)
	require.Equal(t, rabbitmq.Hold, p.State().Strategy)
	require.Equal(t, []bool{true, true}, e.raised(), "what the exchange held is gone")
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
	requireDepth(t, b, 20, 0)

	require.NoError(t, server.SetPlugin(t.Context(), true))
	_, err := server.Ctl(t.Context(), "close_all_connections", "cut by the test")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Reach().UpTo > 0 && p.State().Connected }, patience, tick)
	require.Len(t, e.raised(), 2, "held messages are nowhere but in the ledger")
}

// The broker restarts without its plugin: what was published ahead came due meanwhile and is nowhere.
func TestAuto_APluginThatIsGoneAfterARestartIsALoss(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	p, err := rabbitmq.NewPublisher(b, e, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	p.CheckEvery(time.Hour) // it must be the restart that shows it
	run(t, p)
	requireEpoch(t, 1, p)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))
	requireEpoch(t, 2, p)
	require.Equal(t, []bool{true, false}, e.raised())
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Unplug())
	require.NoError(t, server.Start(t.Context()))
	requireEpoch(t, 3, p)
	require.Equal(t, rabbitmq.Hold, p.State().Strategy)
	require.Equal(t, []bool{true, false, true}, e.raised())
}
