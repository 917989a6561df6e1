package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
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

var (
	errOverran  = errors.New("the handler has not returned after its context ended")
	errNoResult = errors.New("the handler has not returned a result for each delivery")
)

// attempt gives deliveries to their handler once, in a goroutine of its own, and returns its error for each: one that neither returns nor
// heeds its context is given up with errOverran, and runs on without the worker. Nothing can end it. Beyond maxOverran of them the worker
// waits for it all the same, until the drain: the queue stands still then, and the others go on.
func (l *lane) attempt(work context.Context, its []item) []error {
	limit := l.consumer.cfg.HandleTimeout
	if len(its) > 1 {
		limit = min(limit, lotLimit)
	}
	ctx, cancel := context.WithTimeout(work, limit)
	returned := make(chan []error, 1)
	go func() {
		defer cancel()
		l.contain(ctx, its, returned)
	}()
	select {
	case errs := <-returned:
		return errs
	case <-ctx.Done():
	}
	grace := time.NewTimer(l.consumer.overrunGrace)
	defer grace.Stop()
	drain := work.Done()
	for {
		select {
		case errs := <-returned:
			return errs
		case <-drain:
			drain = nil
			grace.Reset(handlerGrace)
			continue
		case <-grace.C:
		}
		if l.overran.Add(1) > maxOverran && drain != nil {
			l.overran.Add(-1)
			l.consumer.broker.cfg.Log.LogAttrs(work, slog.LevelError, "too many handlers have not returned, a worker waits for another",
				slog.String("queue", l.queue), slog.String("message_id", its[0].delivery.MessageId))
			continue // the timer has fired: what comes next is the handler's return or the drain
		}
		go func() {
			<-returned
			l.overran.Add(-1)
		}()
		return slices.Repeat([]error{errOverran}, len(its))
	}
}

// contain sends the errors of a handler, also when it panics or ends its goroutine: the process serves other deliveries too.
func (l *lane) contain(ctx context.Context, its []item, returned chan<- []error) {
	err := errors.New("the handler ended its goroutine (runtime.Goexit) instead of returning")
	var errs []error
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
		if len(errs) != len(its) {
			errs = slices.Repeat([]error{err}, len(its))
		}
		returned <- errs
	}()
	errs = l.give(ctx, its)
}

// give hands deliveries to their handler, and keeps those that are malformed.
func (l *lane) give(ctx context.Context, its []item) []error {
	var (
		errs = make([]error, len(its))
		good []outbox.Delivery
		at   []int // where those are among its
	)
	for i, it := range its {
		d, err := decode(&it.delivery)
		if err == nil && l.topic != "" && d.Topic != l.topic {
			err = fmt.Errorf("routing key %q is not the topic of %s", d.Topic, l.queue)
		}
		if err != nil {
			errs[i] = l.keepMalformed(ctx, &it.delivery, err)
			continue
		}
		if l.topic == "" {
			l.consumer.bindAgain(ctx, it.source.conn, d.Topic)
		}
		good, at = append(good, d), append(at, i)
	}
	if len(good) == 0 {
		return errs
	}
	made := l.handle(ctx, good)
	for j, i := range at {
		errs[i] = errNoResult
		if len(made) == len(good) {
			errs[i] = made[j]
		}
	}
	return errs
}

// keepMalformed keeps a delivery that cannot be read, for the reason why.
func (l *lane) keepMalformed(ctx context.Context, d *amqp.Delivery, why error) error {
	l.malformed.pass(l.consumer.broker.cfg.Log).LogAttrs(ctx, slog.LevelError, "delivery is malformed and is kept for an operator",
		slog.String("queue", l.queue), slog.String("message_id", d.MessageId), slog.Any("error", why))
	if err := l.keep(ctx, strayOf(d, why)); err != nil {
		return err
	}
	l.consumer.broker.cfg.Observer.malformed(l.queue)
	return nil
}
