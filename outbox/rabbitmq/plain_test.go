package rabbitmq_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// What the consuming side declares must be taken by every broker from 3.10 on, with the delayed exchange or without.
func TestConsumer_NeedsNoDelayedExchange(t *testing.T) {
	t.Parallel()
	url := devtest.Plain(t)
	for _, queueType := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
		namespace := devtest.NamespaceOn(t, url, topic)
		b := at(t, url, rabbitmq.Config{Namespace: namespace, QueueType: queueType})
		in := &inbox{}
		_, stop := consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
		ch, err := devtest.Dial(t, url).Channel()
		require.NoError(t, err)
		require.NoError(t, ch.Confirm(false))
		const messages = 20
		for id := range int64(messages) {
			confirm, err := ch.PublishWithDeferredConfirm(namespace+".deliver", topic, false, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, ContentType: "text/plain", Body: []byte("p"),
				Headers: amqp.Table{
					"duebox-id": id + 1, "duebox-store": store, "duebox-generation": int64(1), "duebox-attempt": int64(0),
					"duebox-due": time.Now().UnixMicro(),
				},
			})
			require.NoError(t, err)
			acked, err := confirm.WaitContext(t.Context())
			require.NoError(t, err)
			require.True(t, acked)
		}
		require.Eventually(t, func() bool { return len(in.ids()) == messages }, patience, tick)
		requireDepth(t, b, 0, 1)
		// Declared again with the same arguments: no mismatch after a restart of the process.
		require.NoError(t, stop())
		_, stop = consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
		require.NoError(t, stop())
	}
}
