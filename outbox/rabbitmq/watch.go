package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	errNoConsumers = errors.New("the queue has no consumer although this one was not told that it has ended")
	errPassedOver  = errors.New("the queue has messages and gives this consumer none")
)

// watch asks the lane's queue for its counts now and then, and ends the source when the broker has no consumer for it any more. A broker
// that loses a consumer says so with basic.cancel, but not always: a quorum queue that is deleted under load, on 3.10. The function that
// it returns stops and waits; a question that is asked by then is answered first, because an answer that is not waited for costs the connection.
func (l *lane) watch(ctx context.Context, s *source) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer l.seen.Store(nil)
		var seen sighting
		for pause(ctx, l.consumer.every, stopped) {
			next, why := l.look(ctx, s, seen)
			if why != nil {
				s.end(why)
				return
			}
			seen = next
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

// sighting is what one look has found. The zero value: nothing to worry about.
type sighting struct {
	noConsumers bool
	passedOver  bool  // messages are ready although the lane holds nothing
	arrived     int64 // deliveries, before the queue was asked
}

// look asks once and returns why the source is of no use. One answer is not enough for that, unless it is that there is no queue: a quorum
// queue without a leader, or with one that was elected just now, tells fewer consumers than it has. (It also counts one that has ended
// until what it was given is acknowledged, so nothing is found while handlers run.)
//
// If others consume the queue too, their number says nothing about this one. But a consumer with nothing in hand gets what is ready at
// once, so one that got nothing from look to look while messages were ready is not among them. A single delivery that takes longer than
// that on the wire looks the same, and begins again.
func (l *lane) look(ctx context.Context, s *source, last sighting) (sighting, error) {
	if s.conn.isBlocked() {
		return sighting{}, nil // no answer is owed
	}
	now := sighting{arrived: s.arrived.Load()}
	var q amqp.Queue
	err := s.conn.aside(ctx, func(ch *amqp.Channel) (err error) {
		q, err = inspect(ctx, s.conn, ch, l.queue)
		return err
	})
	switch {
	case isCode(err, amqp.NotFound):
		return now, fmt.Errorf("the queue is gone although this consumer was not told: %w", err)
	case err != nil:
		if ctx.Err() == nil && !s.conn.over() {
			l.logs.pass(l.consumer.broker.cfg.Log).LogAttrs(ctx, slog.LevelWarn, "queue could not be asked for its consumers",
				slog.String("queue", l.queue), slog.Any("error", err))
		}
		return sighting{}, nil
	}
	l.seen.Store(&q)
	now.noConsumers = q.Consumers == 0
	now.passedOver = q.Messages > 0 && s.held.Load() == 0 && s.arrived.Load() == now.arrived
	switch {
	case now.noConsumers && last.noConsumers:
		return now, errNoConsumers
	case now.passedOver && last.passedOver && now.arrived == last.arrived:
		return now, errPassedOver
	}
	return now, nil
}
