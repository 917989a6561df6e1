package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// delayedType is the exchange type of the plugin rabbitmq_delayed_message_exchange.
const delayedType = "x-delayed-message"

// deliveryLimit is how often a quorum queue gives out a delivery before it dead-letters it. 4.x would take 20 where
// nothing is said, which a flapping network reaches, and -1 for none, which 3.x refuses. The ledger counts attempts itself.
const deliveryLimit = 1 << 30

var (
	// ErrMismatch says that something on the broker exists with other arguments than these settings ask for.
	ErrMismatch = errors.New("rabbitmq: it exists with other arguments")
	// ErrNoDelayedExchange says that the broker lacks the exchange type x-delayed-message.
	ErrNoDelayedExchange = errors.New("rabbitmq: the broker has no exchange type x-delayed-message")
)

// names are those of everything on the broker.
type names struct{ namespace string }

func (n names) delay() string            { return n.namespace + ".delay" }
func (n names) deliver() string          { return n.namespace + ".deliver" }
func (n names) unrouted() string         { return n.namespace + ".unrouted" } // an exchange and a queue
func (n names) epoch() string            { return n.namespace + ".epoch" }
func (n names) epochLock() string        { return n.namespace + ".epoch.lock" }
func (n names) work(topic string) string { return n.namespace + ".work." + topic }

// declaration makes things on the broker through one channel. The first error ends the channel.
type declaration struct {
	ctx   context.Context //nolint:containedctx // lives for one function
	c     *connection
	ch    *amqp.Channel
	err   error
	found amqp.Queue // the last one, with its counts
}

// step runs one declaration of a thing, named in the error.
func (d *declaration) step(thing string, declare func() error) {
	if d.err != nil {
		return
	}
	err := d.c.call(d.ctx, "declare "+thing, declare)
	if isCode(err, amqp.PreconditionFailed) {
		err = fmt.Errorf("%w: %w; delete it when it is empty, or take the old settings back", ErrMismatch, err)
	}
	d.err = err
}

func (d *declaration) exchange(name, kind string, args amqp.Table) {
	d.step("exchange "+name, func() error { return d.ch.ExchangeDeclare(name, kind, true, false, false, false, args) })
}

func (d *declaration) queue(name string, args amqp.Table) {
	d.step("queue "+name, func() (err error) {
		d.found, err = d.ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

func (d *declaration) bind(queue, key, exchange string) {
	d.step("binding of "+queue+" to "+exchange, func() error { return d.ch.QueueBind(queue, key, exchange, false, nil) })
}

// declareDelivery makes where all messages end: what no work queue takes goes to <ns>.unrouted and is not dropped.
func (b *Broker) declareDelivery(ctx context.Context, c *connection, ch *amqp.Channel) error {
	d := declaration{ctx: ctx, c: c, ch: ch}
	d.exchange(b.unrouted(), amqp.ExchangeFanout, nil)
	d.queue(b.unrouted(), b.queueArgs())
	d.bind(b.unrouted(), "", b.unrouted())
	d.exchange(b.deliver(), amqp.ExchangeTopic, amqp.Table{"alternate-exchange": b.unrouted()})
	return d.err
}

// declareDelay makes the delayed exchange in front of <ns>.deliver. A broker without the plugin closes the connection.
func (b *Broker) declareDelay(ctx context.Context, c *connection, ch *amqp.Channel) error {
	d := declaration{ctx: ctx, c: c, ch: ch}
	d.exchange(b.delay(), delayedType, amqp.Table{"x-delayed-type": amqp.ExchangeTopic})
	if isCode(d.err, amqp.CommandInvalid) {
		return fmt.Errorf("%w: %w", ErrNoDelayedExchange, d.err)
	}
	if d.err != nil {
		return d.err
	}
	return b.bindDelay(ctx, c, ch)
}

func (b *Broker) bindDelay(ctx context.Context, c *connection, ch *amqp.Channel) error {
	d := declaration{ctx: ctx, c: c, ch: ch}
	d.step("binding of "+b.deliver()+" to "+b.delay(), func() error {
		return ch.ExchangeBind(b.deliver(), "#", b.delay(), false, nil)
	})
	return d.err
}

// tryDelayed makes and deletes an exchange of the delayed type. A broker without the plugin closes the connection.
func (b *Broker) tryDelayed(ctx context.Context, c *connection, ch *amqp.Channel) error {
	name := b.namespace + ".probe"
	err := c.call(ctx, "declare exchange "+name, func() error {
		return ch.ExchangeDeclare(name, delayedType, false, true, true, false, amqp.Table{"x-delayed-type": amqp.ExchangeTopic})
	})
	switch {
	case isCode(err, amqp.CommandInvalid):
		return fmt.Errorf("%w: %w", ErrNoDelayedExchange, err)
	case err != nil:
		return err
	}
	return c.call(ctx, "delete exchange "+name, func() error { return ch.ExchangeDelete(name, false, false) })
}

// inspectDelay answers 404, and ch is closed, if the delayed exchange is not there. Whether the broker has the plugin still
// is not asked: an exchange outlives it.
func (b *Broker) inspectDelay(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return c.call(ctx, "inspect exchange "+b.delay(), func() error {
		return ch.ExchangeDeclarePassive(b.delay(), delayedType, true, false, false, false, nil)
	})
}

// declareWork makes the topic's work queue and returns it as it was then. What a policy or the delivery limit would drop from it goes to <ns>.unrouted.
func (b *Broker) declareWork(ctx context.Context, c *connection, ch *amqp.Channel, topic string) (amqp.Queue, error) {
	d := declaration{ctx: ctx, c: c, ch: ch}
	args := b.queueArgs()
	args["x-dead-letter-exchange"] = b.unrouted()
	d.queue(b.work(topic), args)
	d.bind(b.work(topic), topic, b.deliver())
	return d.found, d.err
}

// queueArgs are explicit, so that neither the version nor the default queue type of the virtual host can change what a
// declaration means.
func (b *Broker) queueArgs() amqp.Table {
	args := amqp.Table{amqp.QueueTypeArg: string(b.cfg.QueueType)}
	if b.cfg.QueueType == Quorum {
		args["x-delivery-limit"] = int64(deliveryLimit)
	}
	return args
}

// inspect reads a queue's counts. A queue that is not there is error 404, and the channel is closed.
func inspect(ctx context.Context, c *connection, ch *amqp.Channel, queue string) (amqp.Queue, error) {
	var q amqp.Queue
	err := c.call(ctx, "inspect queue "+queue, func() (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return q, err
}

// remove deletes a queue with all that is in it. A queue that is not there is no error.
func (c *connection) remove(ctx context.Context, ch *amqp.Channel, queue string) error {
	return c.call(ctx, "delete queue "+queue, func() error {
		_, err := ch.QueueDelete(queue, false, false, false)
		return err
	})
}

// aside runs ask on a channel of its own, because the answer may end it.
func (c *connection) aside(ctx context.Context, ask func(ch *amqp.Channel) error) error {
	ch, err := c.channel(ctx)
	if err != nil {
		return err
	}
	if err := ask(ch); err != nil {
		return err // and the channel is closed, or the connection is about to be
	}
	return c.call(ctx, "close channel", ch.Close)
}

// isCode reports whether err is the broker's answer with this code.
func isCode(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Code == code
}
