package rabbitmq_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func TestNewBroker_ValidatesAndNeverShowsThePassword(t *testing.T) {
	t.Parallel()
	for url, cfg := range map[string]rabbitmq.Config{
		"amqp://user:hunter2@host:port/":  {},
		"amqp://user:hunter2@host/%zz":    {},
		"http://user:hunter2@host":        {},
		"amqp://user:hunter2@localhost/a": {Namespace: "with space"},
		"amqp://user:hunter2@localhost/b": {QueueType: "stream"},
		"amqp://user:hunter2@localhost/c": {Heartbeat: time.Second},
		"amqp://user:hunter2@localhost/d": {CallTimeout: -1},
	} {
		_, err := rabbitmq.NewBroker(url, cfg)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestBroker_SpeaksTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	defer certified.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, url := listening(t, tls.NewListener(l, &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}), devtest.AMQP(t))
	url = strings.Replace(url, "amqp://", "amqps://", 1)
	namespace := devtest.Namespace(t, topic)

	_, err = at(t, url, rabbitmq.Config{Namespace: namespace}).Probe(t.Context())
	require.ErrorAs(t, err, new(*tls.CertificateVerificationError))

	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	b := at(t, url, rabbitmq.Config{Namespace: namespace, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	in := &inbox{}
	_, stopConsumer := consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p, err := rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	stop := run(t, p)
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 2000, time.Now())))
	require.Eventually(t, func() bool { return len(in.ids()) == 2000 }, patience, tick)
	require.NoError(t, stop())
	require.NoError(t, stopConsumer())
	requireDepth(t, b, 0, 0)
}

func TestBroker_DialEndsWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // connects, and then says nothing
	require.NoError(t, err)
	defer l.Close()
	b := at(t, "amqp://"+l.Addr().String(), rabbitmq.Config{DialTimeout: 200 * time.Millisecond})
	_, err = b.Probe(t.Context())
	require.ErrorContains(t, err, "has not answered in time")
}

func TestDepth_SaysThatAQueueIsNotThere(t *testing.T) {
	t.Parallel()
	_, _, err := shared(t).Depth(t.Context(), "nobody.was.here")
	require.ErrorIs(t, err, outbox.ErrNoQueue)
}
