package devtest

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// AMQP is the URL of the shared broker, which has the delayed exchange.
func AMQP(tb testing.TB) string {
	tb.Helper()
	return setting(tb, "AMQP_URL")
}

// Plain is the URL of a shared broker that need not have the delayed exchange:
// that of AMQP_PLAIN_URL, a newer one say, or else the same.
func Plain(tb testing.TB) string {
	tb.Helper()
	if url := os.Getenv("AMQP_PLAIN_URL"); url != "" {
		return url
	}
	return AMQP(tb)
}

// Namespace is a random prefix for the names on the shared broker. When the
// test ends, the exchanges and queues that the product declares under it are
// deleted; of the work queues those of the given topics.
func Namespace(tb testing.TB, topics ...string) string {
	tb.Helper()
	return NamespaceOn(tb, AMQP(tb), topics...)
}

// NamespaceOn is Namespace on the broker at url.
func NamespaceOn(tb testing.TB, url string, topics ...string) string {
	tb.Helper()
	namespace := "t" + name()
	tb.Cleanup(func() {
		if err := remove(url, namespace, topics); err != nil {
			tb.Errorf("remove namespace %s: %v", namespace, err)
		}
	})
	return namespace
}

// remove deletes what may be there: AMQP has no list.
func remove(url, namespace string, topics []string) (err error) {
	conn, err := dial(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	// A name that does not exist is deleted without an error.
	for _, exchange := range []string{"delay", "deliver", "unrouted"} {
		if err := ch.ExchangeDelete(namespace+"."+exchange, false, false); err != nil {
			return err
		}
	}
	queues := []string{"unrouted", "epoch"}
	for _, topic := range topics {
		queues = append(queues, "work."+topic)
	}
	for _, queue := range queues {
		if _, err := ch.QueueDelete(namespace+"."+queue, false, false, false); err != nil {
			return err
		}
	}
	return nil
}

// Dial connects to a broker and closes the connection when the test ends. Every
// call on it fails at the latest after a minute: the test would hang otherwise.
func Dial(tb testing.TB, url string) *amqp.Connection {
	tb.Helper()
	conn, err := dial(url)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

func dial(url string) (*amqp.Connection, error) {
	return amqp.DialConfig(url, amqp.Config{
		Heartbeat: 10 * time.Second,
		Dial: func(network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
			defer cancel()
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return conn, conn.SetDeadline(time.Now().Add(time.Minute))
		},
	})
}
