package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duebox/duebox/outbox"
)

// Handlers is what a Consumer gives deliveries to. Each function may be called from many goroutines. No
// error means that the delivery is dealt with and can be acknowledged; an error means that it is not, for no fault of the message (the database
// is away): the same delivery is given again. A panic and runtime.Goexit are taken for errors.
type Handlers struct {
	// Handle takes the deliveries of the topics. Required if there are topics without a Batch.
	Handle func(ctx context.Context, d outbox.Delivery) error
	// Batch takes the deliveries of a topic, instead of Handle: those that have come while all workers were at others, up to
	// ConsumerConfig.Batch, else one alone. It returns an error or nil for each, in order. What it returned an error for is given again
	// alone, by whichever worker is free next. With many the context ends after 5 s, and fewer are given at a time while they take longer than
	// a second: a handler that hangs must not keep its neighbours for long.
	Batch map[string]func(ctx context.Context, ds []outbox.Delivery) []error
	// Unrouted takes what reached no work queue. Nil: <ns>.unrouted is left alone.
	Unrouted func(ctx context.Context, d outbox.Delivery) error
	// Keep takes what cannot be read, of whatever size. Required.
	Keep func(ctx context.Context, s outbox.Stray) error
	// Ready returns nil when handlers can work again. It is asked before consuming goes on after handlers have returned
	// errors for HoldTimeout. Nil: consuming goes on after a pause.
	Ready func(ctx context.Context) error
}

// ConsumerConfig tunes a Consumer. The zero value is usable.
type ConsumerConfig struct {
	// Workers is how many handlers run at a time, for each queue. Default 8.
	Workers int
	// Batch is the most deliveries that a handler of Handlers.Batch is given at once. Default 32.
	Batch int
	// Prefetch is how many deliveries of a queue the broker gives out ahead of their acknowledgement. Default 4 * Workers, and for a topic
	// with a handler of Handlers.Batch half of Workers * Batch, if that is more.
	Prefetch int
	// HandleTimeout is when the context of a handler ends. One that has not returned 20 s later is given up: it is logged, its
	// delivery goes back to the broker, and another is begun in its place. Nothing can end its goroutine; with a hundred of
	// those the queue stands still. Default 30 s.
	HandleTimeout time.Duration
	// HoldTimeout is how long a delivery whose handler returns errors is held and tried again before all that is held goes
	// back to the broker. It must be well below the broker's consumer timeout (30 min). Default 60 s.
	HoldTimeout time.Duration
	// DrainTimeout is how long handlers may go on when Run ends; then their contexts end too. Default 20 s.
	DrainTimeout time.Duration
}

// Consumer brings deliveries to handlers, one consumer on the broker for each queue, and makes sure every 15 s that the broker has it
// still: a broker can lose one and not tell. It is safe for concurrent use.
type Consumer struct {
	broker  *Broker
	cfg     ConsumerConfig
	ready   func(ctx context.Context) error
	lanes   []*lane
	logs    throttle
	running atomic.Bool

	overrunGrace time.Duration
	every        time.Duration
}

// NewConsumer returns a consumer of the topics' work queues and, if there is a handler for it, of <ns>.unrouted. It does no
// I/O.
func NewConsumer(broker *Broker, topics []string, handlers Handlers, cfg ConsumerConfig) (*Consumer, error) {
	setDefault(&cfg.Workers, 8)
	setDefault(&cfg.Batch, 32)
	setDefault(&cfg.HandleTimeout, 30*time.Second)
	setDefault(&cfg.HoldTimeout, time.Minute)
	setDefault(&cfg.DrainTimeout, 20*time.Second)
	switch {
	case broker == nil:
		return nil, errors.New("rabbitmq: a consumer needs a broker")
	case handlers.Keep == nil:
		return nil, errors.New("rabbitmq: a consumer needs Keep")
	case handlers.Handle == nil && slices.ContainsFunc(topics, func(topic string) bool { return handlers.Batch[topic] == nil }):
		return nil, errors.New("rabbitmq: a consumer of topics needs Handle, or a Batch for each")
	case len(topics) == 0 && handlers.Unrouted == nil:
		return nil, errors.New("rabbitmq: a consumer needs a topic or Unrouted")
	case cfg.Workers < 0 || cfg.Prefetch < 0 || cfg.Prefetch > maxPrefetch:
		return nil, fmt.Errorf("rabbitmq: Workers is %d and Prefetch %d, one is below zero or above %d", cfg.Workers, cfg.Prefetch, maxPrefetch)
	case cfg.Batch < 0 || cfg.Batch > maxBatch:
		return nil, fmt.Errorf("rabbitmq: Batch is %d, not 1 to %d", cfg.Batch, maxBatch)
	case cfg.HandleTimeout < 0 || cfg.HoldTimeout < 0 || cfg.DrainTimeout < 0:
		return nil, errors.New("rabbitmq: HandleTimeout, HoldTimeout and DrainTimeout must not be negative")
	}
	for topic := range handlers.Batch {
		if !slices.Contains(topics, topic) {
			return nil, fmt.Errorf("rabbitmq: Batch has a handler for topic %.80q, which is not consumed", topic)
		}
	}
	c := &Consumer{broker: broker, cfg: cfg, ready: handlers.Ready, logs: throttle{period: 10 * time.Second}, overrunGrace: overrunGrace, every: checkEvery}
	for i, topic := range topics {
		if !outbox.ValidTopic(topic) || slices.Contains(topics[:i], topic) {
			return nil, fmt.Errorf("rabbitmq: topic %.80q is not 1 to %d characters of [A-Za-z0-9._-], or there twice", topic, outbox.MaxTopicBytes)
		}
		l := newLane(c, topic, broker.work(topic), each(handlers.Handle), handlers.Keep)
		if batch := handlers.Batch[topic]; batch != nil {
			l.handle, l.batch = batch, cfg.Batch
		}
		c.lanes = append(c.lanes, l)
	}
	if handlers.Unrouted != nil {
		c.lanes = append(c.lanes, newLane(c, "", broker.unrouted(), each(handlers.Unrouted), handlers.Keep))
	}
	return c, nil
}

const (
	maxPrefetch = 65535 // of the protocol
	maxBatch    = 1000
)

// each makes a handler of many of one for a single delivery.
func each(handle func(ctx context.Context, d outbox.Delivery) error) func(ctx context.Context, ds []outbox.Delivery) []error {
	return func(ctx context.Context, ds []outbox.Delivery) []error {
		errs := make([]error, len(ds))
		for i, d := range ds {
			errs[i] = handle(ctx, d)
		}
		return errs
	}
}

// Consuming returns on how many of its queues the consumer has a consumer at the broker, and how many it should have.
func (c *Consumer) Consuming() (have, want int) {
	for _, l := range c.lanes {
		if l.consuming.Load() {
			have++
		}
	}
	return have, len(c.lanes)
}

// Queues returns the work queues that are consumed just now and whose counts the broker has told, in the order of the topics. It has
// been asked for them in the last 15 s, unless it is blocked.
func (c *Consumer) Queues() []outbox.WorkQueue {
	var seen []outbox.WorkQueue
	for _, l := range c.lanes {
		if q := l.seen.Load(); q != nil && l.topic != "" {
			seen = append(seen, outbox.WorkQueue{Topic: l.topic, Ready: q.Messages, Consumers: q.Consumers})
		}
	}
	return seen
}

// Run consumes until ctx ends. It makes lost connections and lost queues again for ever.
//
// Then it takes no more deliveries, lets the handlers that run finish within DrainTimeout, acknowledges what they have dealt
// with and closes the connection. Deliveries that no handler has begun are left to the broker. It returns nil when all
// handlers have returned, else an error, some seconds after DrainTimeout at the latest. It may be run again after it returned.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("rabbitmq: the consumer is running already")
	}
	defer c.running.Store(false)

	// What handlers do outlives ctx, but not the drain.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var workers sync.WaitGroup
	for _, l := range c.lanes {
		for range c.cfg.Workers {
			workers.Go(func() { l.work(ctx, work) })
		}
	}
	finished := make(chan struct{})
	go func() {
		workers.Wait()
		close(finished)
	}()

	pauses := newPauses()
	for {
		conn, err := c.broker.dial(ctx, RoleConsumer, func(blocked bool, reason string) {
			c.broker.cfg.Observer.blocked(RoleConsumer, blocked, reason)
		})
		if err == nil {
			start := time.Now()
			c.broker.cfg.Observer.connected(RoleConsumer)
			c.consume(ctx, conn)
			if ctx.Err() != nil {
				return c.drain(ctx, conn, finished, stop)
			}
			err = conn.cause()
			conn.close(ctx)
			c.broker.cfg.Observer.disconnected(RoleConsumer, err)
			if time.Since(start) > settledAfter {
				pauses.Reset()
			}
		}
		if ctx.Err() == nil {
			c.logs.pass(c.broker.cfg.Log).LogAttrs(ctx, slog.LevelWarn, "no connection for consuming", slog.Any("error", err))
		}
		if !pause(ctx, pauses.NextBackOff(), nil) {
			return c.drain(ctx, nil, finished, stop)
		}
	}
}

// consume feeds all lanes from conn until it or ctx ends.
func (c *Consumer) consume(ctx context.Context, conn *connection) {
	var lanes sync.WaitGroup
	for _, l := range c.lanes {
		lanes.Go(func() { l.consume(ctx, conn) })
	}
	lanes.Wait()
}

// bindAgain declares a topic's queue and binding again, if it is one of the consumer's: a message of it that reached no queue
// says that somebody has removed the binding. At most once in a second for each topic.
func (c *Consumer) bindAgain(ctx context.Context, conn *connection, topic string) {
	i := slices.IndexFunc(c.lanes, func(l *lane) bool { return l.topic == topic })
	if i < 0 || !c.lanes[i].binds.allow() {
		return
	}
	ch, err := conn.channel(ctx)
	if err == nil {
		err = c.broker.declareDelivery(ctx, conn, ch)
	}
	if err == nil {
		_, err = c.broker.declareWork(ctx, conn, ch, topic)
	}
	if err == nil {
		err = conn.call(ctx, "close channel", ch.Close)
	}
	if err != nil {
		c.broker.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "topic could not be bound again", slog.String("topic", topic), slog.Any("error", err))
		return
	}
	c.broker.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "a message reached no queue, its topic was bound again", slog.String("topic", topic))
}

// drain waits for the handlers and then closes conn, which may be nil. The acknowledgements go out before the farewell.
func (c *Consumer) drain(ctx context.Context, conn *connection, finished <-chan struct{}, stop context.CancelFunc) error {
	timer := time.NewTimer(c.cfg.DrainTimeout)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
		stop()
		<-finished // handlerGrace later at the latest
	}
	if conn != nil {
		conn.close(ctx)
		c.broker.cfg.Observer.disconnected(RoleConsumer, errClosedHere)
	}
	for _, l := range c.lanes {
		if n := l.overran.Load(); n > 0 {
			return fmt.Errorf("rabbitmq: %d handlers of %s have not returned after their contexts ended", n, l.queue)
		}
	}
	return nil
}
