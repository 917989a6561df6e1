package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// lane is one queue and its workers. The workers stay over all channels that the queue is consumed on.
type lane struct {
	consumer  *Consumer
	topic     string // empty: any
	queue     string
	handle    func(ctx context.Context, ds []outbox.Delivery) []error
	batch     int           // the most that handle is given
	size      atomic.Int64  // how many it is given for now
	slow      time.Duration // what takes longer makes lots smaller
	keep      func(ctx context.Context, s outbox.Stray) error
	feed      chan []item // unbuffered: what a worker has not taken stays with the broker
	consuming atomic.Bool
	seen      atomic.Pointer[amqp.Queue] // as the broker last told it; nil: it is not consumed, or was not told yet
	overran   atomic.Int64               // handlers that were given up and have not returned
	malformed throttle
	logs      throttle
	binds     throttle
}

// item is a delivery and the channel that it came on.
type item struct {
	delivery amqp.Delivery
	source   *source
}

// source is one channel of a lane. Its deliveries can be acknowledged on it only, and only while it is open.
type source struct {
	conn  *connection
	ended chan struct{} // closed when the channel is of no use any more

	back chan []item // what a handler of many has left: any worker may take it

	arrived atomic.Int64 // deliveries
	held    atomic.Int64 // deliveries that are not dealt with; at 0 none that has arrived waits anywhere

	once    sync.Once
	useless chan error // why the channel is to be ended, at most one
}

func newSource(conn *connection) *source {
	return &source{conn: conn, ended: make(chan struct{}), useless: make(chan error, 1), back: make(chan []item)}
}

// end has the lane end the channel. The first reason counts.
func (s *source) end(why error) { s.once.Do(func() { s.useless <- why }) }

func (s *source) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func newLane(c *Consumer, topic, queue string, handle func(context.Context, []outbox.Delivery) []error, keep func(context.Context, outbox.Stray) error) *lane {
	l := &lane{
		consumer: c, topic: topic, queue: queue, handle: handle, batch: 1, slow: lotSlow, keep: keep, feed: make(chan []item),
		malformed: throttle{period: 10 * time.Second}, logs: throttle{period: 10 * time.Second}, binds: throttle{period: time.Second},
	}
	l.size.Store(1)
	return l
}

var (
	errGivenUp  = errors.New("handlers have returned errors for too long")
	errCanceled = errors.New("the broker has ended the consumer: the queue was deleted or has moved")
)

// consume keeps one consumer on the lane's queue until conn or ctx ends.
func (l *lane) consume(ctx context.Context, conn *connection) {
	pauses := newPauses()
	for {
		start := time.Now()
		err := l.subscribe(ctx, conn)
		if ctx.Err() != nil || conn.over() {
			return
		}
		l.logs.pass(l.consumer.broker.cfg.Log).LogAttrs(ctx, slog.LevelWarn, "consumer ended, starting another",
			slog.String("queue", l.queue), slog.Any("error", err))
		if time.Since(start) > settledAfter {
			pauses.Reset()
		}
		for {
			if !pause(ctx, pauses.NextBackOff(), conn.done) {
				return
			}
			if !errors.Is(err, errGivenUp) || l.consumer.isReady(ctx) {
				break
			}
		}
	}
}

// isReady asks whether handlers can work again.
func (c *Consumer) isReady(ctx context.Context) bool {
	if c.ready == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, c.broker.cfg.CallTimeout)
	defer cancel()
	return c.ready(ctx) == nil
}

// subscribe declares the queue, consumes it on a channel of its own and feeds the workers, until the channel, the connection
// or ctx ends. When ctx ends the channel stays open for the acknowledgements of what the workers have.
func (l *lane) subscribe(ctx context.Context, conn *connection) error {
	ch, err := conn.channel(ctx)
	if err != nil {
		return err
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	s := newSource(conn)
	deliveries, tag, err := l.start(ctx, conn, ch)
	if err == nil {
		l.consuming.Store(true)
		stopWatching := l.watch(ctx, s)
		defer stopWatching()
		err = l.pump(ctx, s, deliveries, closed)
		l.consuming.Store(false)
	}
	if ctx.Err() != nil {
		l.leave(ctx, conn, ch, tag)
		return ctx.Err()
	}
	close(s.ended) // before the channel is closed: no worker shall begin what the broker gives out again
	if !ch.IsClosed() {
		_ = conn.call(ctx, "close channel", ch.Close) // if that goes wrong, the connection has ended
	}
	if errors.Is(err, errCanceled) {
		if reason := <-closed; reason != nil {
			return reason
		}
	}
	return err
}

// start begins to consume.
func (l *lane) start(ctx context.Context, conn *connection, ch *amqp.Channel) (<-chan amqp.Delivery, string, error) {
	if err := l.consumer.broker.declareDelivery(ctx, conn, ch); err != nil {
		return nil, "", err
	}
	var work amqp.Queue
	if l.topic != "" {
		var err error
		if work, err = l.consumer.broker.declareWork(ctx, conn, ch, l.topic); err != nil {
			return nil, "", err
		}
	}
	err := conn.call(ctx, "set prefetch", func() error { return ch.Qos(l.prefetch(), 0, false) })
	if err != nil {
		return nil, "", err
	}
	var deliveries <-chan amqp.Delivery
	tag := l.consumer.broker.cfg.Name + "-" + rand.Text()
	err = conn.call(ctx, "consume queue "+l.queue, func() (err error) {
		deliveries, err = ch.Consume(l.queue, tag, false, false, false, false, nil)
		return err
	})
	if err == nil {
		work.Consumers++ // this one
		l.seen.Store(&work)
	}
	return deliveries, tag, err
}

func (l *lane) prefetch() int {
	cfg := &l.consumer.cfg
	switch {
	case cfg.Prefetch > 0:
		return cfg.Prefetch
	case l.batch > 1:
		return min(cfg.Workers*max(4, l.batch/2), maxPrefetch)
	}
	return min(4*cfg.Workers, maxPrefetch)
}

// pump feeds the workers: what has come while none was free goes to the next one together, up to the lane's size, and what a handler of many
// has left goes to the next one alone, before that. It returns when the channel ends, a worker or the watch gives it up, or ctx ends.
func (l *lane) pump(ctx context.Context, s *source, deliveries <-chan amqp.Delivery, closed <-chan *amqp.Error) error {
	var next, alone []item
	for {
		var (
			in  = deliveries
			out chan<- []item // nil while there is nothing to feed
			lot []item
		)
		switch {
		case len(alone) > 0:
			lot, out = alone[:1], l.feed
		case len(next) > 0:
			lot, out = next[:min(len(next), int(l.size.Load()))], l.feed
		}
		if len(next) >= l.batch {
			in = nil
		}
		select {
		case d, ok := <-in:
			if !ok {
				return errCanceled
			}
			s.held.Add(1)
			s.arrived.Add(1)
			next = append(next, item{d, s})
		case its := <-s.back:
			alone = append(alone, its...)
		case out <- lot:
			if len(alone) > 0 {
				alone = alone[1:]
			} else {
				next = next[len(lot):]
			}
		case reason := <-closed:
			if reason == nil {
				return errClosedHere
			}
			return reason
		case why := <-s.useless:
			return why
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave ends the consumer but not the channel.
func (l *lane) leave(ctx context.Context, conn *connection, ch *amqp.Channel, tag string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if tag != "" {
		_ = conn.call(ctx, "end consumer", func() error { return ch.Cancel(tag, false) })
	}
}

// work deals with what it is fed until ctx ends. Handlers run in the context work.
func (l *lane) work(ctx, work context.Context) {
	for {
		select {
		case its := <-l.feed:
			s := its[0].source // of all
			if !s.over() && ctx.Err() == nil {
				if len(its) > 1 {
					its = l.together(ctx, work, its)
				} else {
					start := time.Now()
					l.deal(ctx, work, its[0])
					l.resize(1, time.Since(start))
				}
			}
			s.held.Add(-int64(len(its)))
		case <-ctx.Done():
			return
		}
	}
}

// together gives deliveries to the handler once, acknowledges those that are dealt with and gives the others back to be handled alone. It
// returns those that are not held any more.
func (l *lane) together(ctx, work context.Context, its []item) (gone []item) {
	start := time.Now()
	errs := l.attempt(work, its)
	l.resize(len(its), time.Since(start))
	var left []item
	for i, err := range errs {
		switch {
		case err == nil:
			_ = its[i].delivery.Ack(false) // see deal
			gone = append(gone, its[i])
		case errors.Is(err, errOverran):
			l.giveUp(work, its[i])
			gone = append(gone, its[i])
		default:
			if !errors.Is(err, outbox.ErrAlone) {
				l.logs.pass(l.consumer.broker.cfg.Log).LogAttrs(work, slog.LevelWarn, "delivery is tried again alone",
					slog.String("queue", l.queue), slog.Any("error", err))
			}
			left = append(left, its[i])
		}
	}
	if len(left) > 0 {
		select {
		case left[0].source.back <- left:
		case <-left[0].source.ended:
		case <-ctx.Done():
		}
	}
	return gone
}

// resize makes lots larger while they take little time and smaller when they take much: all rows of a lot are locked meanwhile, and if it comes
// to nothing the time of all is lost.
func (l *lane) resize(lot int, took time.Duration) {
	size := l.size.Load()
	switch {
	case took > l.slow:
		l.size.Store(max(1, int64(lot)/2))
	case took < lotFast && int64(lot) >= size:
		l.size.Store(min(size*2, int64(l.batch)))
	}
}

const (
	lotFast = 200 * time.Millisecond
	lotSlow = time.Second
	// When the context of a handler of many ends. What that leaves is given again alone, for as long as one may take.
	lotLimit = 5 * time.Second
)

// giveUp returns a delivery whose handler did not return.
func (l *lane) giveUp(work context.Context, it item) {
	l.consumer.broker.cfg.Log.LogAttrs(work, slog.LevelError, "handler did not return and is given up, the delivery goes back to the broker",
		slog.String("queue", l.queue), slog.String("message_id", it.delivery.MessageId), slog.Int64("given_up", l.overran.Load()))
	_ = it.delivery.Reject(true) // alone: its neighbours are none the worse
}

// deal brings one delivery to its end: acknowledged, or left to the broker.
func (l *lane) deal(ctx, work context.Context, it item) {
	pauses := newPauses()
	for start := time.Now(); ; {
		err := l.attempt(work, []item{it})[0]
		if err == nil {
			// If we die here, the delivery comes again and the guard drops it. The same holds when the channel has ended:
			// a delivery knows its channel, and a channel that was closed sends nothing.
			_ = it.delivery.Ack(false)
			return
		}
		if errors.Is(err, errOverran) {
			l.giveUp(work, it)
			return
		}
		l.logs.pass(l.consumer.broker.cfg.Log).LogAttrs(work, slog.LevelWarn, "delivery is held", slog.String("queue", l.queue), slog.Any("error", err))
		if time.Since(start) >= l.consumer.cfg.HoldTimeout {
			it.source.end(errGivenUp)
			return
		}
		if !pause(ctx, pauses.NextBackOff(), it.source.ended) || it.source.over() {
			return
		}
	}
}
