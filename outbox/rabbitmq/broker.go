package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// QueueType is the kind of queue that deliveries wait in.
type QueueType string

// The kinds of work queues.
const (
	// Quorum queues are replicated.
	Quorum QueueType = amqp.QueueTypeQuorum
	// Classic queues have one copy.
	Classic QueueType = amqp.QueueTypeClassic
)

// Config says how a broker is spoken to. The zero value is usable.
type Config struct {
	// Namespace begins the name of everything on the broker: [A-Za-z0-9._-], at most 64. Default "duebox".
	Namespace string
	// TLS is used for amqps:// URLs. Default: the system's certificates and the URL's host.
	TLS *tls.Config
	// Name is shown by the broker for each connection, followed by what it is for. Default: the namespace.
	Name string
	// QueueType is the kind of <ns>.unrouted and the work queues. Queues that exist cannot change it. Default Quorum.
	QueueType QueueType
	// Heartbeat is asked of the broker; a connection without a sign of life for one and a half of it is over. An
	// interval in the URL comes first. Default 10 s.
	Heartbeat time.Duration
	// DialTimeout bounds connecting, from the name's look-up to the end of the handshakes. Default 10 s.
	DialTimeout time.Duration
	// CallTimeout bounds each answer of the broker and each write to it. Default 10 s.
	CallTimeout time.Duration
	// Log takes what an operator should know. Default: nothing is logged.
	Log *slog.Logger
	// Observer is told what happens to connections.
	Observer Observer
}

// Broker is a RabbitMQ broker and the namespace on it. It holds no connection and is safe for concurrent use.
type Broker struct {
	url string
	cfg Config
	names
}

// NewBroker returns the broker at url (amqp:// or amqps://). It does no I/O. Errors never show the url, which may hold a
// password.
func NewBroker(brokerURL string, cfg Config) (*Broker, error) {
	setDefault(&cfg.Namespace, "duebox")
	setDefault(&cfg.Name, cfg.Namespace)
	setDefault(&cfg.QueueType, Quorum)
	setDefault(&cfg.Heartbeat, 10*time.Second)
	setDefault(&cfg.DialTimeout, 10*time.Second)
	setDefault(&cfg.CallTimeout, 10*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := amqp.ParseURI(brokerURL); err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("rabbitmq: the broker's URL is not valid: %w", err)
	}
	switch {
	case !outbox.ValidTopic(cfg.Namespace):
		return nil, fmt.Errorf("rabbitmq: Namespace %q is not 1 to %d characters of [A-Za-z0-9._-]", cfg.Namespace, outbox.MaxTopicBytes)
	case len(cfg.Name) > 200:
		return nil, errors.New("rabbitmq: Name is longer than 200 bytes")
	case cfg.QueueType != Quorum && cfg.QueueType != Classic:
		return nil, fmt.Errorf("rabbitmq: QueueType is %q, not %q or %q", cfg.QueueType, Quorum, Classic)
	case cfg.Heartbeat < 2*time.Second:
		return nil, fmt.Errorf("rabbitmq: Heartbeat is %v, less than 2s", cfg.Heartbeat)
	case cfg.DialTimeout < 0 || cfg.CallTimeout < 0:
		return nil, fmt.Errorf("rabbitmq: DialTimeout is %v and CallTimeout %v, one is below zero", cfg.DialTimeout, cfg.CallTimeout)
	}
	return &Broker{url: brokerURL, cfg: cfg, names: names{cfg.Namespace}}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// visit opens a connection and a channel for one question, because the answer may end either.
func (b *Broker) visit(ctx context.Context, role string, ask func(c *connection, ch *amqp.Channel) error) error {
	c, err := b.dial(ctx, role, nil)
	if err != nil {
		return err
	}
	defer c.close(ctx)
	ch, err := c.channel(ctx)
	if err != nil {
		return err
	}
	return ask(c, ch)
}

// Probe asks, on a connection of its own that the answer may end, whether the broker has the exchange type
// x-delayed-message. It leaves nothing behind.
func (b *Broker) Probe(ctx context.Context) (delayed bool, err error) {
	err = b.visit(ctx, "probe", func(c *connection, ch *amqp.Channel) error { return b.tryDelayed(ctx, c, ch) })
	switch {
	case errors.Is(err, ErrNoDelayedExchange):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("probe the broker: %w", err)
	}
	return true, nil
}

// Depth asks how many messages of the topic are ready for a consumer, and how many consumers the broker has for it. It
// returns an error that wraps outbox.ErrNoQueue if no consumer has ever made the queue, or somebody deleted it.
func (b *Broker) Depth(ctx context.Context, topic string) (ready, consumers int, err error) {
	err = b.visit(ctx, "depth", func(c *connection, ch *amqp.Channel) error {
		q, err := inspect(ctx, c, ch, b.work(topic))
		ready, consumers = q.Messages, q.Consumers
		return err
	})
	if isCode(err, amqp.NotFound) {
		err = fmt.Errorf("%w: %w", outbox.ErrNoQueue, err)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read depth of topic %s: %w", topic, err)
	}
	return ready, consumers, nil
}
