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
)

// strategy is what the strategies differ in.
type strategy interface {
	name() Strategy
	// inspect answers 404, and ch is closed, if what holds messages until they fire is not on the broker.
	inspect(ctx context.Context, c *connection, ch *amqp.Channel) error
	// declare makes what the strategy needs besides <ns>.deliver.
	declare(ctx context.Context, c *connection, ch *amqp.Channel) error
	// route says where a publication goes at the time now. An error wraps outbox.ErrUnpublishable.
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

func (s plugin) inspect(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return s.broker.inspectDelay(ctx, c, ch)
}

func (s plugin) declare(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return s.broker.declareDelay(ctx, c, ch)
}

func (s plugin) route(p *outbox.Publication, now time.Time) (route, error) {
	delay := delayOf(p.FireAt, now)
	switch {
	case delay <= 0:
		return route{exchange: s.broker.deliver()}, nil
	case delay > maxDelay:
		return route{}, fmt.Errorf("%w: it is %d ms ahead, the delayed exchange takes at most %d", outbox.ErrUnpublishable, delay, int64(maxDelay))
	}
	return route{exchange: s.broker.delay(), delay: delay}, nil
}
