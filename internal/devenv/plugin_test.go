package devenv_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

// What a broker does whose plugin is disabled and enabled again while it runs. The exchange and its bindings stay, it can
// be inspected and bound all the while, and only what it held is gone: nothing that can be asked for tells that afterwards.
// While the plugin is away, declaring the exchange ends the connection, and publishing to it the channel.
func TestPlugin_DisabledAndEnabledKeepsTheExchangeAndLosesWhatItHolds(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	x := declareOn(t, broker.URL(), "t", nil)
	x.publish(t, "bound", "held", delay(int64(time.Hour/time.Millisecond)))
	require.Equal(t, 1, delayed(t, broker))

	require.NoError(t, broker.SetPlugin(t.Context(), false))
	ch := channel(t, x.conn)
	require.NoError(t, ch.ExchangeDeclarePassive(x.name, "x-delayed-message", true, false, false, false, nil))
	require.NoError(t, ch.QueueBind(x.queue, "bound", x.name, false, nil))
	for name, headers := range map[string]amqp.Table{"delayed": delay(int64(1000)), "undelayed": nil} {
		ch := channel(t, x.conn)
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		require.NoError(t, ch.PublishWithContext(t.Context(), x.name, "bound", false, false, amqp.Publishing{Headers: headers}))
		requireCode(t, <-closed, amqp.PreconditionFailed)
		require.False(t, x.conn.IsClosed(), name)
	}
	other := devtest.Dial(t, broker.URL())
	err := channel(t, other).ExchangeDeclare(x.name, "x-delayed-message", true, false, false, false, direct())
	requireCode(t, err, amqp.CommandInvalid)
	require.True(t, other.IsClosed())

	// The same when the broker starts without the plugin.
	require.NoError(t, broker.Stop(t.Context()))
	require.NoError(t, broker.Start(t.Context()))
	conn := devtest.Dial(t, broker.URL())
	require.NoError(t, channel(t, conn).ExchangeDeclarePassive(x.name, "x-delayed-message", true, false, false, false, nil))
	err = channel(t, conn).ExchangeDeclare(x.name, "x-delayed-message", true, false, false, false, direct())
	requireCode(t, err, amqp.CommandInvalid)

	require.NoError(t, broker.SetPlugin(t.Context(), true))
	require.Zero(t, delayed(t, broker))
	conn = devtest.Dial(t, broker.URL())
	ch = channel(t, conn)
	require.NoError(t, ch.ExchangeDeclare(x.name, "x-delayed-message", true, false, false, false, direct()))
	takes := consume(t, conn, x.queue)
	require.NoError(t, ch.PublishWithContext(t.Context(), x.name, "bound", false, false, amqp.Publishing{
		Headers: delay(int64(50)), Body: []byte("through the old binding"),
	}))
	require.Equal(t, "through the old binding", string(receive(t, takes).Body))
	require.ErrorContains(t, devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone}).SetPlugin(t.Context(), true), "no plugin")
}

func TestRabbitMQ_RenamedIsEmpty(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	x := declareOn(t, broker.URL(), "t", nil)
	before, err := broker.Eval(t.Context(), "node().")
	require.NoError(t, err)
	require.NoError(t, broker.Rename())
	require.NoError(t, broker.Start(t.Context()))
	after, err := broker.Eval(t.Context(), "node().")
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.False(t, has(t, broker.URL(), x.queue))
	out, err := broker.Ctl(t.Context(), "list_queues", "name")
	require.NoError(t, err, "rabbitmqctl finds it by its new name")
	require.NotContains(t, string(out), x.queue)
}
