package rabbitmq

import (
	"context"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// SetOverrunGrace shortens what is due to the statements of outbox.Store. Before Run only.
func (c *Consumer) SetOverrunGrace(d time.Duration) { c.overrunGrace = d }

// Lots has a handler of many given up to n deliveries from the start, however long they take. Before Run only.
func (c *Consumer) Lots(n int) {
	for _, l := range c.lanes {
		l.size.Store(int64(n))
		l.slow = math.MaxInt64
	}
}

// MaxOverran is how many handlers of a queue may run that were given up.
const MaxOverran = maxOverran

// CheckEvery sets how often the queues are asked for their consumers. Before Run only.
func (c *Consumer) CheckEvery(d time.Duration) { c.every = d }

// CheckEvery sets how often a connection makes sure of what it publishes into. Before Run only.
func (p *Publisher) CheckEvery(d time.Duration) { p.every = d }

// TierNames are those of the queues, and of the exchanges in front of them, for the tiers.
func TierNames(b *Broker, delays ...time.Duration) []string {
	var names []string
	_ = newTiers(b, delays).each(func(_ time.Duration, queue string) error {
		names = append(names, queue)
		return nil
	})
	return names
}

// WorkQueue is the name of a topic's work queue.
func WorkQueue(b *Broker, topic string) string { return b.work(topic) }

// MendPlugin is what a publisher with strategy plugin does at each look, and at a connection to a broker that is the one it was.
func MendPlugin(ctx context.Context, b *Broker) error {
	return b.visit(ctx, "mend", func(c *connection, ch *amqp.Channel) error { return plugin{b}.mend(ctx, c, ch) })
}

// MendTiers is what a publisher with these tiers does at each look.
func MendTiers(ctx context.Context, b *Broker, delays ...time.Duration) error {
	return b.visit(ctx, "mend", func(c *connection, ch *amqp.Channel) error { return newTiers(b, delays).mend(ctx, c, ch) })
}
