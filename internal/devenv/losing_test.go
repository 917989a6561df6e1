package devenv_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

// These run against whichever exchange the machine has, on brokers of their
// own: what a confirmed delayed message survives, and what it does not.

func TestLosing_CleanRestartKeepsEveryMessage(t *testing.T) {
	t.Parallel()
	const n = 5_000
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	held := hold(t, broker.URL(), n, 12*time.Second)
	require.Equal(t, n, delayed(t, broker))
	require.False(t, held.fired(t), "none may be due before the restart")
	require.NoError(t, broker.Stop(t.Context()))
	require.NoError(t, broker.Start(t.Context()))
	require.Equal(t, n, held.survivors(t))
}

func TestLosing_KillAfterTheLastConfirm(t *testing.T) {
	t.Parallel()
	const n = 5_000
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})

	// 5 s later nothing is lost.
	held := hold(t, broker.URL(), n, 10*time.Second)
	settled := time.NewTimer(5 * time.Second)
	defer settled.Stop()
	<-settled.C
	require.NoError(t, broker.Kill())
	require.NoError(t, broker.Start(t.Context()))
	require.Equal(t, n, held.survivors(t))

	// At once, something is. It is a race with the broker's log, so the worst
	// of a few tries counts.
	worst := n
	for try := 0; try < 5 && worst == n; try++ {
		require.NoError(t, broker.Wipe())
		require.NoError(t, broker.Start(t.Context()))
		held := hold(t, broker.URL(), n, 5*time.Second)
		require.NoError(t, broker.Kill())
		require.NoError(t, broker.Start(t.Context()))
		worst = min(worst, held.survivors(t))
	}
	t.Logf("%d of %d confirmed messages survived", worst, n)
	require.Less(t, worst, n)
}

func TestExchange_CountsAndObeysPolicies(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	x := declareOn(t, broker.URL(), "t", nil)
	x.publish(t, "bound", "in 49 days", delay(int64(1)<<32-1))
	x.publish(t, "bound", "in an hour", delay(int64(3_600_000)))
	x.publish(t, "bound", "2^32: not delayed", delay(int64(1)<<32))
	require.Equal(t, 2, delayed(t, broker))

	_, err := broker.Ctl(t.Context(), "set_policy", "--apply-to", "exchanges", "copy", "^t[.]delay$", `{"alternate-exchange":"amq.fanout"}`)
	require.NoError(t, err)
	_, err = x.ch.QueueDeclare("copies", true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, x.ch.QueueBind("copies", "", "amq.fanout", false, nil))
	copies := consume(t, x.conn, "copies")
	x.publish(t, "bound", "copied", delay(int64(100)))
	require.Equal(t, "copied", string(receive(t, copies).Body))
	require.Equal(t, "2^32: not delayed", string(x.take(t).Body))
	require.Equal(t, "copied", string(x.take(t).Body))
	require.Empty(t, copies)

	require.NoError(t, x.ch.ExchangeDelete("t.delay", false, false))
	declareOn(t, broker.URL(), "t", nil)
	require.Zero(t, delayed(t, broker))
}

// delayed is what the broker counts on "t.delay".
func delayed(t *testing.T, broker *devenv.RabbitMQ) int {
	t.Helper()
	out, err := broker.Eval(t.Context(),
		`{ok, X} = rabbit_exchange:lookup(rabbit_misc:r(<<"/">>, exchange, <<"t.delay">>)), `+
			`proplists:get_value(messages_delayed, rabbit_exchange:info(X)).`)
	require.NoError(t, err)
	n, err := strconv.Atoi(out)
	require.NoError(t, err)
	return n
}

// held is what hold has published.
type held struct {
	url string
	due time.Time // of the last one, at the latest
}

// hold publishes n persistent messages to "t.delay", and returns when all are
// confirmed.
func hold(t *testing.T, url string, n int, wait time.Duration) held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ch := channel(t, devtest.Dial(t, url))
	require.NoError(t, ch.ExchangeDeclare("t.delay", "x-delayed-message", true, false, false, false, direct()))
	_, err := ch.QueueDeclare("t.work", true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind("t.work", "bound", "t.delay", false, nil))
	require.NoError(t, ch.Confirm(false))
	body := make([]byte, 200)
	confirms := make([]*amqp.DeferredConfirmation, n)
	for i := range confirms {
		confirms[i], err = ch.PublishWithDeferredConfirmWithContext(ctx, "t.delay", "bound", false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Headers: delay(int64(wait / time.Millisecond)), Body: body,
			MessageId: strconv.Itoa(i),
		})
		require.NoError(t, err)
	}
	for _, confirm := range confirms {
		acked, err := confirm.WaitContext(ctx)
		require.NoError(t, err)
		require.True(t, acked)
	}
	return held{url: url, due: time.Now().Add(wait)}
}

// fired tells whether any has reached the queue.
func (h held) fired(t *testing.T) bool {
	t.Helper()
	_, some, err := channel(t, devtest.Dial(t, h.url)).Get("t.work", true)
	require.NoError(t, err)
	return some
}

// survivors waits until everything that is still there has fired, and counts
// it. A message that comes twice counts once.
func (h held) survivors(t *testing.T) int {
	t.Helper()
	conn := devtest.Dial(t, h.url)
	// Due after all of them: what fires in order has fired them before, into
	// the same queue.
	wait := max(time.Until(h.due), 0) + time.Second
	err := channel(t, conn).PublishWithContext(t.Context(), "t.delay", "bound", false, false, amqp.Publishing{
		Headers: delay(int64(wait / time.Millisecond)), MessageId: "last",
	})
	require.NoError(t, err)
	takes := consume(t, conn, "t.work")
	seen := make(map[string]bool)
	for {
		delivery := receive(t, takes)
		if delivery.MessageId == "last" {
			return len(seen)
		}
		seen[delivery.MessageId] = true
	}
}
