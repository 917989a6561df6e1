package devenv_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// These are the rules of the exchange type x-delayed-message, whoever provides
// it: they run unchanged against the upstream plugin and our stand-in.

func TestDeclare_RefusesABadTargetTypeOnTheChannel(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]amqp.Table{
		"none":   nil,
		"itself": {"x-delayed-type": "x-delayed-message"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := devtest.Namespace(t)
			conn := devtest.Dial(t, devtest.AMQP(t))
			err := channel(t, conn).ExchangeDeclare(namespace+".delay", "x-delayed-message", true, false, false, false, arguments)
			requireCode(t, err, amqp.PreconditionFailed)
			// The connection stays open.
			require.NoError(t, channel(t, conn).ExchangeDeclare(namespace+".delay", "x-delayed-message", true, false, false, false, direct()))
		})
	}
}

func TestDeclare_ClosesTheConnectionForAnUnknownType(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		kind      string
		arguments amqp.Table
	}{
		"target":   {"x-delayed-message", amqp.Table{"x-delayed-type": "x-unknown"}},
		"exchange": {"x-unknown", direct()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := devtest.Namespace(t)
			conn := devtest.Dial(t, devtest.AMQP(t))
			closed := conn.NotifyClose(make(chan *amqp.Error, 1))
			err := channel(t, conn).ExchangeDeclare(namespace+".delay", kind.kind, true, false, false, false, kind.arguments)
			requireCode(t, err, amqp.CommandInvalid)
			requireCode(t, <-closed, amqp.CommandInvalid)
		})
	}
}

func TestDeclare_RefusesAnotherExchangeType(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	err := channel(t, x.conn).ExchangeDeclare(x.name, "topic", true, false, false, false, nil)
	requireCode(t, err, amqp.PreconditionFailed)
	require.False(t, x.conn.IsClosed())
}

func TestDeclare_KeepsTheOldRoutingWhenTheTargetTypeChanges(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	err := channel(t, x.conn).ExchangeDeclare(x.name, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"})
	require.NoError(t, err)

	x.publish(t, "not bound", "as fanout, at once", nil)
	x.publish(t, "not bound", "as fanout, later", delay(int64(1)))
	x.publish(t, "bound", "as direct, later", delay(int64(100)))
	require.Equal(t, "as direct, later", string(x.take(t).Body))
}

func TestDeclare_RoutesAsTheTargetTypeDoes(t *testing.T) {
	t.Parallel()
	for kind, binding := range map[string]struct {
		key       string
		arguments amqp.Table
	}{
		"topic":   {"order.*", nil},
		"fanout":  {"", nil},
		"headers": {"", amqp.Table{"x-match": "any", "colour": "red"}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			x := declare(t, amqp.Table{"x-delayed-type": kind})
			other := x.name[:len(x.name)-len("delay")] + "work.other"
			_, err := x.ch.QueueDeclare(other, true, false, false, false, nil)
			require.NoError(t, err)
			for _, queue := range []string{other, x.queue} {
				require.NoError(t, x.ch.QueueBind(queue, binding.key, x.name, false, binding.arguments))
			}
			takes := consume(t, x.conn, other)

			x.publish(t, "order.expire", "now", amqp.Table{"colour": "red"})
			require.Equal(t, "now", string(receive(t, takes).Body))
			x.publish(t, "order.expire", "later", amqp.Table{"colour": "red", "x-delay": int64(100)})
			require.Equal(t, "later", string(receive(t, takes).Body))

			require.NoError(t, x.ch.QueueUnbind(other, binding.key, x.name, binding.arguments))
			x.publish(t, "order.expire", "unbound", amqp.Table{"colour": "red", "x-delay": int64(50)})
			for _, body := range []string{"now", "later", "unbound"} {
				require.Equal(t, body, string(x.take(t).Body))
			}
			require.NoError(t, x.ch.QueueBind(other, binding.key, x.name, false, binding.arguments))
			x.publish(t, "order.expire", "bound again", amqp.Table{"colour": "red", "x-delay": int64(50)})
			require.Equal(t, "bound again", string(receive(t, takes).Body))
		})
	}
}

func TestDeclare_ReachesAQueueThroughAnotherExchange(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	deliver := x.name[:len(x.name)-len("delay")] + "deliver"
	other := x.name[:len(x.name)-len("delay")] + "work.other"
	require.NoError(t, x.ch.ExchangeDeclare(deliver, "topic", true, false, false, false, nil))
	require.NoError(t, x.ch.ExchangeBind(deliver, "through", x.name, false, nil))
	_, err := x.ch.QueueDeclare(other, true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, x.ch.QueueBind(other, "through", deliver, false, nil))

	x.publish(t, "through", "later", delay(int64(50)))
	delivery := receive(t, consume(t, x.conn, other))
	require.Equal(t, "later", string(delivery.Body))
	require.Equal(t, x.name, delivery.Exchange)
	require.Equal(t, "through", delivery.RoutingKey)
}
