package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

const (
	// How long handlers may take to return after their contexts have ended in a drain.
	handlerGrace = 2 * time.Second
	// The same after their timeouts, when outbox.Store gives up its effect and counts the attempt, which
	// takes as long as a statement may.
	overrunGrace = 20 * time.Second
	// How many handlers of a queue that were given up may still run. More would use up the process's memory.
	maxOverran = 100
)

var errOverran = errors.New("the handler has not returned after its context ended")

// attempt gives a delivery to its handler once, in a goroutine of its own: one that neither returns nor heeds its context is
// given up with errOverran, and runs on without the worker. Nothing can end it. Beyond maxOverran of them the worker waits for it
// all the same, until the drain: the queue stands still then, and the others go on.
func (l *lane) attempt(work context.Context, it item) error {
	ctx, cancel := context.WithTimeout(work, l.consumer.cfg.HandleTimeout)
	returned := make(chan error, 1)
	go func() {
		defer cancel()
		l.contain(ctx, it, returned)
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(l.consumer.overrunGrace)
	defer grace.Stop()
	drain := work.Done()
	for {
		select {
		case err := <-returned:
			return err
		case <-drain:
			drain = nil
			grace.Reset(handlerGrace)
			continue
		case <-grace.C:
		}
		if l.overran.Add(1) > maxOverran && drain != nil {
			l.overran.Add(-1)
			l.consumer.broker.cfg.Logger.LogAttrs(work, slog.LevelError, "too many handlers have not returned, a worker waits for another",
				slog.String("queue", l.queue), slog.String("message_id", it.delivery.MessageId))
			continue // the timer has fired: what comes next is the handler's return or the drain
		}
		go func() {
			<-returned //nolint:errcheck // nobody is left whom it could tell
			l.overran.Add(-1)
		}()
		return errOverran
	}
}

// contain sends the error of a handler, also when it panics or ends its goroutine: the process serves other deliveries too.
func (l *lane) contain(ctx context.Context, it item, returned chan<- error) {
	err := errors.New("the handler ended its goroutine (runtime.Goexit) instead of returning")
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
		returned <- err
	}()
	err = l.give(ctx, it)
}

// give hands a delivery to its handler, or keeps it if it is malformed.
func (l *lane) give(ctx context.Context, it item) error {
	d := &it.delivery
	delivery, err := decode(d)
	if err == nil && l.topic != "" && delivery.Topic != l.topic {
		err = fmt.Errorf("routing key %q is not the topic of %s", delivery.Topic, l.queue)
	}
	if err == nil {
		if l.topic == "" {
			l.consumer.bindAgain(ctx, it.source.conn, delivery.Topic)
		}
		return l.handle(ctx, delivery)
	}
	l.malformed.pass(l.consumer.broker.cfg.Logger).LogAttrs(ctx, slog.LevelError, "delivery is malformed and is kept for an operator",
		slog.String("queue", l.queue), slog.String("message_id", d.MessageId), slog.Any("error", err))
	if err := l.keep(ctx, strayOf(d, err)); err != nil {
		return err
	}
	l.consumer.broker.cfg.Observer.malformed(l.queue)
	return nil
}
