package devenv_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// exchange is one delayed exchange with a consumed queue, bound by "bound".
type exchange struct {
	name  string
	queue string
	conn  *amqp.Connection
	ch    *amqp.Channel // in confirm mode
	acks  chan amqp.Confirmation
	takes <-chan amqp.Delivery
}

func direct() amqp.Table { return amqp.Table{"x-delayed-type": "direct"} }

// declare makes an exchange on the shared broker, with more arguments.
func declare(t *testing.T, more amqp.Table) *exchange {
	t.Helper()
	namespace := devtest.Namespace(t, "bound", "other")
	return declareOn(t, devtest.AMQP(t), namespace, more)
}

func declareOn(t *testing.T, url, namespace string, more amqp.Table) *exchange {
	t.Helper()
	x := &exchange{name: namespace + ".delay", queue: namespace + ".work.bound", conn: devtest.Dial(t, url)}
	x.ch = channel(t, x.conn)
	arguments := direct()
	maps.Copy(arguments, more)
	require.NoError(t, x.ch.ExchangeDeclare(x.name, "x-delayed-message", true, false, false, false, arguments))
	_, err := x.ch.QueueDeclare(x.queue, true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, x.ch.QueueBind(x.queue, "bound", x.name, false, nil))
	x.takes = consume(t, x.conn, x.queue)
	require.NoError(t, x.ch.Confirm(false))
	x.acks = x.ch.NotifyPublish(make(chan amqp.Confirmation, 100))
	return x
}

// publish sends one message and returns when it is confirmed. It gives the time
// before the message was sent.
func (x *exchange) publish(t *testing.T, key, body string, headers amqp.Table) time.Time {
	t.Helper()
	began := time.Now()
	require.NoError(t, x.send(t, key, body, false, headers))
	require.True(t, x.confirmed(t))
	return began
}

func (x *exchange) send(t *testing.T, key, body string, mandatory bool, headers amqp.Table) error {
	t.Helper()
	return x.ch.PublishWithContext(t.Context(), x.name, key, mandatory, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, Headers: headers, Body: []byte(body),
	})
}

func (x *exchange) confirmed(t *testing.T) bool {
	t.Helper()
	select {
	case confirmation := <-x.acks:
		return confirmation.Ack
	case <-time.After(patience):
		require.Fail(t, "no confirm")
		return false
	}
}

func (x *exchange) take(t *testing.T) amqp.Delivery {
	t.Helper()
	return receive(t, x.takes)
}

func receive(t *testing.T, deliveries <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case delivery, ok := <-deliveries:
		require.True(t, ok, "the channel is closed")
		return delivery
	case <-time.After(patience):
		require.Fail(t, "no delivery")
		return amqp.Delivery{}
	}
}

func delay(d any) amqp.Table { return amqp.Table{"x-delay": d} }

func channel(t *testing.T, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	require.NoError(t, err)
	return ch
}

func consume(t *testing.T, conn *amqp.Connection, queue string) <-chan amqp.Delivery {
	t.Helper()
	deliveries, err := channel(t, conn).ConsumeWithContext(t.Context(), queue, "", true, false, false, false, nil)
	require.NoError(t, err)
	return deliveries
}

// has tells whether a queue exists.
func has(t *testing.T, url, queue string) bool {
	t.Helper()
	_, err := channel(t, devtest.Dial(t, url)).QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		requireCode(t, err, amqp.NotFound)
	}
	return err == nil
}

func requireCode(t *testing.T, err error, code int) {
	t.Helper()
	var broker *amqp.Error
	require.ErrorAs(t, err, &broker)
	require.Equal(t, code, broker.Code, "%v", err)
}

func portOf(s interface{ Port() int }) string { return strconv.Itoa(s.Port()) }
