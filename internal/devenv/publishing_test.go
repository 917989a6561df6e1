package devenv_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

const day = 24 * time.Hour

func TestPublish_RoutesAtOnce(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]amqp.Table{
		"absent":             nil,
		"nil":                delay(nil),
		"bool":               delay(true),
		"0":                  delay(int64(0)),
		"negative":           delay(int64(-1000)),
		"fraction of 1":      delay(0.9),
		"2^32":               delay(int64(1) << 32),
		"a year":             delay(int64(365 * day / time.Millisecond)),
		"25 days as Go int":  delay(int(25 * day / time.Millisecond)), // sent as 32 bit
		"string of 0":        delay("0"),
		"string of negative": delay("-1"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := declare(t, nil)
			x.publish(t, "bound", name, headers)
			require.Equal(t, name, string(x.take(t).Body))
		})
	}
}

func TestPublish_DelaysByMilliseconds(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"int64":          int64(300),
		"int32":          int32(300),
		"int16":          int16(300),
		"int8":           int8(100),
		"byte":           byte(200),
		"Go int":         300,
		"float64":        300.9,
		"numeric string": "300",
	} {
		wait := 300 * time.Millisecond
		switch number := value.(type) {
		case int8:
			wait = time.Duration(number) * time.Millisecond
		case byte:
			wait = time.Duration(number) * time.Millisecond
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := declare(t, nil)
			began := x.publish(t, "bound", name, delay(value))
			delivery := x.take(t)
			require.GreaterOrEqual(t, time.Since(began), wait)
			require.Equal(t, name, string(delivery.Body))
			// Some versions negate the header; it is never gone.
			require.Contains(t, delivery.Headers, "x-delay")
		})
	}
}

func TestPublish_ConfirmsLongBeforeTheDueTime(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	x.publish(t, "bound", "in 49 days", delay(int64(1)<<32-1))
	x.publish(t, "bound", "in 24 days", delay(int64(24*day/time.Millisecond)))
	x.publish(t, "bound", "soon", delay(int64(100)))
	require.Equal(t, "soon", string(x.take(t).Body))
}

func TestPublish_FiresInTheOrderOfTheDueTimesAndPrecisely(t *testing.T) {
	t.Parallel()
	const n = 50
	x := declare(t, nil)
	due := make(map[string]time.Time, n)
	for i := range n {
		wait := time.Duration(n-i) * 20 * time.Millisecond
		body := wait.String()
		began := x.publish(t, "bound", body, delay(int64(wait/time.Millisecond)))
		due[body] = began.Add(wait)
	}
	best := time.Hour
	for range n {
		delivery := x.take(t)
		late := time.Since(due[string(delivery.Body)])
		require.GreaterOrEqual(t, late, time.Duration(0), "early")
		best = min(best, late)
	}
	// Typically 1 to 2 ms; on a busy machine some are late, not all.
	require.Less(t, best, 10*time.Millisecond)
}

func TestPublish_DiesOfAStringThatIsNoNumber(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	closed := x.ch.NotifyClose(make(chan *amqp.Error, 1))
	require.NoError(t, x.send(t, "bound", "lost", false, delay("soon")))
	requireCode(t, <-closed, amqp.InternalError)
	confirmation := <-x.acks // closed, or resolved as not acked
	require.False(t, confirmation.Ack)

	again := declareOn(t, devtest.AMQP(t), strings.TrimSuffix(x.name, ".delay"), nil)
	again.publish(t, "bound", "good", delay(int64(10)))
	require.Equal(t, "good", string(again.take(t).Body))
}

func TestPublish_ReturnsEveryDelayedMandatoryMessage(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	returns := x.ch.NotifyReturn(make(chan amqp.Return, 1))

	require.NoError(t, x.send(t, "bound", "later", true, delay(int64(200))))
	returned := <-returns
	require.Equal(t, uint16(amqp.NoRoute), returned.ReplyCode)
	require.Equal(t, "later", string(returned.Body))
	require.True(t, x.confirmed(t))
	require.Equal(t, "later", string(x.take(t).Body))

	require.NoError(t, x.send(t, "bound", "now", true, nil))
	require.True(t, x.confirmed(t))
	require.Equal(t, "now", string(x.take(t).Body))
	require.Empty(t, returns, "undelayed, it has a route")

	require.NoError(t, x.send(t, "not bound", "nowhere", true, nil))
	require.Equal(t, "nowhere", string((<-returns).Body))
	require.True(t, x.confirmed(t))
}

func TestPublish_DropsWhatHasNoQueueAtTheDueTime(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	require.NoError(t, x.ch.QueueBind(x.queue, "clock", x.name, false, nil))
	require.NoError(t, x.ch.QueueUnbind(x.queue, "bound", x.name, nil))
	x.publish(t, "bound", "dropped", delay(int64(100)))
	x.publish(t, "clock", "it has come due", delay(int64(200)))
	require.Equal(t, "it has come due", string(x.take(t).Body))

	require.NoError(t, x.ch.QueueBind(x.queue, "bound", x.name, false, nil))
	x.publish(t, "bound", "bound again", delay(int64(50)))
	require.Equal(t, "bound again", string(x.take(t).Body))
}

func TestPublish_LosesWhatADeletedExchangeHolds(t *testing.T) {
	t.Parallel()
	x := declare(t, nil)
	x.publish(t, "bound", "dropped", delay(int64(300)))
	require.NoError(t, x.ch.ExchangeDelete(x.name, false, false))
	require.NoError(t, x.ch.ExchangeDeclare(x.name, "x-delayed-message", true, false, false, false, direct()))
	require.NoError(t, x.ch.QueueBind(x.queue, "bound", x.name, false, nil))
	x.publish(t, "bound", "new", delay(int64(600)))
	require.Equal(t, "new", string(x.take(t).Body))
}

func TestPublish_CopiesToTheAlternateExchangeAtOnce(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, "bound")
	x := declareOn(t, devtest.AMQP(t), namespace, amqp.Table{"alternate-exchange": namespace + ".unrouted"})
	require.NoError(t, x.ch.ExchangeDeclare(namespace+".unrouted", "fanout", true, false, false, false, nil))
	_, err := x.ch.QueueDeclare(namespace+".unrouted", true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, x.ch.QueueBind(namespace+".unrouted", "", namespace+".unrouted", false, nil))
	copies := consume(t, x.conn, namespace+".unrouted")

	x.publish(t, "bound", "in 49 days", delay(int64(1)<<32-1))
	require.Equal(t, "in 49 days", string(receive(t, copies).Body))
	x.publish(t, "bound", "later", delay(int64(100)))
	require.Equal(t, "later", string(receive(t, copies).Body))
	require.Equal(t, "later", string(x.take(t).Body))
	require.Empty(t, copies)
}
