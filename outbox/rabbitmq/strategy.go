package rabbitmq

import (
	"context"
	"fmt"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// Strategy says how the broker comes to fire a message at its time.
type Strategy string

// The strategies.
const (
	// Auto takes the best strategy that the broker allows.
	Auto Strategy = "auto"
	// Plugin publishes ahead of time to an exchange of type x-delayed-message.
	Plugin Strategy = "plugin"
	// Hold leaves messages in the ledger until their time. It needs nothing of the broker.
	Hold Strategy = "hold"
	// Tiers lets each message spend one of a few fixed delays in queues that dead-letter it, and leaves it in the ledger before. It
	// needs nothing of the broker that 3.10 does not have. Auto never takes it.
	Tiers Strategy = "tiers"
)

// Strategies returns all of them.
func Strategies() []Strategy { return []Strategy{Auto, Plugin, Hold, Tiers} }

// strategy is what the strategies differ in.
type strategy interface {
	name() Strategy
	// reach is how far ahead messages are taken.
	reach() outbox.Reach
	// inspect answers 404, and ch is closed, if what holds messages until they fire is not on the broker.
	inspect(ctx context.Context, c *connection, ch *amqp.Channel) error
	// declare makes what the strategy needs besides <ns>.deliver.
	declare(ctx context.Context, c *connection, ch *amqp.Channel) error
	// mend makes again what was there and holds no messages. It answers 404, and ch is closed, if what holds them is gone, which must be
	// known before it is made again.
	mend(ctx context.Context, c *connection, ch *amqp.Channel) error
	// route says where a publication goes at the time now. An error wraps outbox.ErrTooSoon.
	route(p *outbox.Publication, now time.Time) (route, error)
}

// route is a way into the broker. The routing key is the topic on each.
type route struct {
	exchange string
	delay    int64 // milliseconds; 0: none
}

// plugin sends what is due later through the delayed exchange. What is due already goes past it: there the confirm says
// that a queue has the message, and an exchange that is stuck cannot hold it up.
type plugin struct{ broker *Broker }

// maxDelay is the longest delay that the delayed exchange honours, in milliseconds. It routes longer ones at once.
const maxDelay = math.MaxUint32

func (s plugin) name() Strategy { return Plugin }

// The clocks of those who read a message and those who publish it may differ by less than a second.
func (s plugin) reach() outbox.Reach {
	return outbox.Reach{UpTo: maxDelay*time.Millisecond - time.Second}
}

func (s plugin) inspect(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return s.broker.inspectDelay(ctx, c, ch)
}

func (s plugin) declare(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return s.broker.declareDelay(ctx, c, ch)
}

// The exchange itself is not declared: if somebody deleted it just now, that would hide what it held. Whether the broker has the plugin
// still, which would not keep a binding from being made, another exchange tells.
func (s plugin) mend(ctx context.Context, c *connection, ch *amqp.Channel) error {
	if err := s.broker.bindDelay(ctx, c, ch); err != nil {
		return err
	}
	return s.broker.tryDelayed(ctx, c, ch)
}

func (s plugin) route(p *outbox.Publication, now time.Time) (route, error) {
	delay := delayOf(p.FireAt, now)
	switch {
	case delay <= 0:
		return route{exchange: s.broker.deliver()}, nil
	case delay > maxDelay:
		return route{}, fmt.Errorf("%w: %d ms ahead, the delayed exchange takes at most %d", outbox.ErrTooSoon, delay, int64(maxDelay))
	}
	return route{exchange: s.broker.delay(), delay: delay}, nil
}

// hold takes messages at their time and gives them to the queues.
type hold struct{ broker *Broker }

func (s hold) name() Strategy { return Hold }

func (s hold) reach() outbox.Reach { return outbox.Reach{} }

func (s hold) inspect(context.Context, *connection, *amqp.Channel) error { return nil }

func (s hold) declare(context.Context, *connection, *amqp.Channel) error { return nil }

func (s hold) mend(context.Context, *connection, *amqp.Channel) error { return nil }

func (s hold) route(p *outbox.Publication, now time.Time) (route, error) {
	if early := p.FireAt.Sub(now); early > 0 {
		return route{}, fmt.Errorf("%w: %v ahead", outbox.ErrTooSoon, early)
	}
	return route{exchange: s.broker.deliver()}, nil
}

// asked returns the strategy that was asked for, nil for Auto.
func (p *Publisher) asked() strategy {
	switch p.cfg.Strategy {
	case Plugin:
		return plugin{p.broker}
	case Hold:
		return hold{p.broker}
	case Tiers:
		return newTiers(p.broker, p.cfg.Tiers)
	case Auto:
	}
	return nil
}

// chosen returns the strategy for the next connection, and why it is that one.
func (p *Publisher) chosen(ctx context.Context) (s strategy, why string, err error) {
	if s := p.asked(); s != nil {
		return s, "it was asked for", nil
	}
	delayed, err := p.broker.Probe(ctx)
	switch {
	case err != nil:
		return nil, "", err
	case delayed:
		return plugin{p.broker}, "the broker has exchanges of type " + delayedType, nil
	}
	return hold{p.broker}, "the broker has no exchanges of type " + delayedType, nil
}
