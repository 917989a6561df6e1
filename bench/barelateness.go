package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bareLateness publishes n messages into the delayed exchange, due step apart from ahead on, and returns how late each came to a consumer, in
// milliseconds and in the order of their arrival. Exchange, queue, message, confirms and prefetch are those of the program; there is no ledger.
func bareLateness(ctx context.Context, s services, n int, ahead, step time.Duration) (late []float64, err error) {
	const exchange, queue = "bench.lateness.delay", "bench.lateness.queue"
	err = withConnection(ctx, s.amqp, func(conn *amqp.Connection) error {
		in, err := conn.Channel()
		if err != nil {
			return err
		}
		deliveries, err := consumeBare(in, exchange, queue)
		if err != nil {
			return err
		}
		publishing, stop := context.WithCancelCause(ctx)
		published := make(chan error, 1)
		go func() {
			err := publishDue(publishing, s, exchange, n, time.Now().Add(ahead), step)
			if err != nil {
				stop(err)
			}
			published <- err
		}()
		late, err = takeBare(publishing, deliveries, n)
		if err != nil {
			stop(err)
		}
		if err := errors.Join(err, <-published); err != nil {
			return err
		}
		if _, err := in.QueueDelete(queue, false, false, false); err != nil {
			return err
		}
		return in.ExchangeDelete(exchange, false, false)
	})
	return late, err
}

// takeBare takes n deliveries as fast as they come.
func takeBare(ctx context.Context, deliveries <-chan amqp.Delivery, n int) (late []float64, err error) {
	for len(late) < n {
		select {
		case d, open := <-deliveries:
			if !open {
				return late, fmt.Errorf("%d of %d messages came: the consumer ended", len(late), n)
			}
			due, _ := d.Headers["duebox-due"].(int64)
			late = append(late, float64(time.Since(time.UnixMicro(due)).Microseconds())/1000)
			if err := d.Ack(false); err != nil {
				return late, err
			}
		case <-ctx.Done():
			return late, fmt.Errorf("%d of %d messages came: %w", len(late), n, context.Cause(ctx))
		}
	}
	return late, nil
}

func consumeBare(ch *amqp.Channel, exchange, queue string) (<-chan amqp.Delivery, error) {
	if err := declareDelay(ch, exchange); err != nil {
		return nil, err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		return nil, err
	}
	if err := ch.QueueBind(queue, topic, exchange, false, nil); err != nil {
		return nil, err
	}
	const prefetch = 32 // as a consumer of the program has by default
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(queue, "", false, false, false, false, nil)
}

// publishDue publishes the messages on a connection of its own, each with the delay that is left of its time, rounded up.
func publishDue(ctx context.Context, s services, exchange string, n int, first time.Time, step time.Duration) error {
	message := wireMessage()
	return withBroker(ctx, s.amqp, func(ch *amqp.Channel) error {
		_, err := bare(ctx, ch, exchange, n, func(i int) amqp.Publishing {
			due := first.Add(time.Duration(i) * step).Truncate(time.Microsecond)
			m := message(i)
			m.Headers["duebox-due"] = due.UnixMicro()
			m.Headers["x-delay"] = max(0, (time.Until(due) + time.Millisecond - 1).Milliseconds())
			return m
		})
		return err
	})
}
