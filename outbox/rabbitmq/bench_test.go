package rabbitmq_test

import (
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

const (
	benchPayload = 200
	benchWindow  = 1000
)

// BenchmarkPublisher publishes as a relay does: 4 callers with 256 messages each.
func BenchmarkPublisher(b *testing.B) {
	b.Run("due", func(b *testing.B) { benchPublisher(b, 0) })
	b.Run("delayed", func(b *testing.B) { benchPublisher(b, 10*time.Minute) })
}

func benchPublisher(b *testing.B, delay time.Duration) {
	b.Helper()
	const callers, chunk = 4, 256
	broker := at(b, devtest.AMQP(b), rabbitmq.Config{Namespace: devtest.Namespace(b, topic), QueueType: rabbitmq.Classic})
	_, stop := consume(b, broker, (&inbox{}).handlers(), rabbitmq.ConsumerConfig{}) // makes the queue
	require.NoError(b, stop())
	p := publisher(b, broker, rabbitmq.PublisherConfig{})
	requireConfirmed(b, p.Publish(b.Context(), publications(1, 1, time.Now().Add(delay))))
	payload := make([]byte, benchPayload)
	chunks := make(chan []outbox.Publication)
	var callersDone sync.WaitGroup
	b.ResetTimer()
	for range callers {
		callersDone.Go(func() {
			for batch := range chunks {
				requireConfirmed(b, p.Publish(b.Context(), batch))
			}
		})
	}
	for n := 0; n < b.N; n += chunk {
		batch := publications(int64(n+1), min(chunk, b.N-n), time.Now().Add(delay))
		for i := range batch {
			batch[i].Payload, batch[i].Headers = payload, nil
		}
		chunks <- batch
	}
	close(chunks)
	callersDone.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkBare is the ceiling: amqp091 alone on one channel, with as many confirms in flight.
func BenchmarkBare(b *testing.B) {
	b.Run("due", func(b *testing.B) { benchBare(b, "", nil) })
	b.Run("delayed", func(b *testing.B) { benchBare(b, "delay", amqp.Table{"x-delay": int64(600_000)}) })
}

func benchBare(b *testing.B, exchange string, headers amqp.Table) {
	b.Helper()
	namespace := devtest.Namespace(b, topic)
	ch, err := devtest.Dial(b, devtest.AMQP(b)).Channel()
	require.NoError(b, err)
	queue := namespace + ".work." + topic
	_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
	require.NoError(b, err)
	key := queue
	if exchange != "" {
		exchange = namespace + "." + exchange
		require.NoError(b, ch.ExchangeDeclare(exchange, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "topic"}))
		key = topic
	}
	require.NoError(b, ch.Confirm(false))
	message := amqp.Publishing{Headers: headers, DeliveryMode: amqp.Persistent, Body: make([]byte, benchPayload)}
	confirms := make([]*amqp.DeferredConfirmation, 0, b.N)
	b.ResetTimer()
	for n := range b.N {
		if n >= benchWindow {
			require.True(b, confirms[n-benchWindow].Wait())
		}
		confirm, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, message)
		require.NoError(b, err)
		confirms = append(confirms, confirm)
	}
	for _, confirm := range confirms {
		require.True(b, confirm.Wait())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
