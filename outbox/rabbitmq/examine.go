package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrForbidden says that the broker's user may not do what is needed below the namespace.
var ErrForbidden = errors.New("rabbitmq: the user lacks permissions")

// Examination is what a broker says of itself.
type Examination struct {
	Product, Version string
	// Delayed says whether there is the exchange type x-delayed-message.
	Delayed bool
}

// Examine connects to the broker and tries what a worker does there: it makes an exchange and a queue below the namespace, sends a message
// through them, reads it and deletes both. It returns an error that wraps ErrForbidden if the broker refuses one of these.
func (b *Broker) Examine(ctx context.Context) (Examination, error) {
	var x Examination
	err := b.visit(ctx, "examine", func(c *connection, ch *amqp.Channel) error {
		x.Product, _ = c.amqp.Properties["product"].(string)
		x.Version, _ = c.amqp.Properties["version"].(string)
		return b.try(ctx, c, ch)
	})
	if isCode(err, amqp.AccessRefused) {
		err = fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	if err != nil {
		return x, fmt.Errorf("examine the broker: %w", err)
	}
	x.Delayed, err = b.Probe(ctx)
	return x, err
}

// try needs each permission once: to configure, to write and to read. Both things vanish with the connection.
func (b *Broker) try(ctx context.Context, c *connection, ch *amqp.Channel) error {
	name := b.namespace + ".examine." + rand.Text()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"configure", func() error {
			_, err := ch.QueueDeclare(name, false, true, true, false, nil)
			return err
		}},
		{"configure", func() error { return ch.ExchangeDeclare(name, amqp.ExchangeFanout, false, true, false, false, nil) }},
		{"bind", func() error { return ch.QueueBind(name, "", name, false, nil) }},
		{"write", func() error {
			return ch.PublishWithContext(ctx, name, "", false, false, amqp.Publishing{Body: []byte("examined")})
		}},
		{"read", func() error {
			_, _, err := ch.Get(name, true)
			return err
		}},
		{"delete", func() error {
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		}},
	} {
		if err := c.call(ctx, step.what+" "+name, step.do); err != nil {
			return err
		}
	}
	return nil
}
