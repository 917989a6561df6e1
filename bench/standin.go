package main

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"
)

// benchStandIn compares the stand-in for the delayed exchange, ten minutes of delay, with a durable classic queue behind a
// direct exchange. A stand-in much slower than a queue would hide what the relay costs, so this aim is required.
func benchStandIn(ctx context.Context, s services, o options) (line, error) {
	const delay, direct, queue = "bench.standin.delay", "bench.standin.direct", "bench.standin.queue"
	delayed := func() (rate float64, err error) {
		err = withBroker(ctx, s.amqp, func(ch *amqp.Channel) error {
			if err := declareDelay(ch, delay); err != nil {
				return err
			}
			if rate, err = bare(ctx, ch, delay, o.rows, wireMessage()); err != nil {
				return err
			}
			return ch.ExchangeDelete(delay, false, false) // and with it what it holds
		})
		return rate, err
	}
	queued := func() (rate float64, err error) {
		err = withBroker(ctx, s.amqp, func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare(direct, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
				return err
			}
			if err := ch.QueueBind(queue, topic, direct, false, nil); err != nil {
				return err
			}
			if rate, err = bare(ctx, ch, direct, o.rows, wireMessage()); err != nil {
				return err
			}
			_, err := ch.QueueDelete(queue, false, false, false)
			return err
		})
		return rate, err
	}
	through, classic, err := interleave(o.rounds, delayed, queued)
	if err != nil {
		return line{}, err
	}
	l := compared("standin", "delayed exchange beside a durable classic queue", "msg/s", through, classic)
	l.Exchange = s.exchange
	l.Aim, l.required = 0.8, true
	l.Met = *l.Ratio >= l.Aim
	return l, nil
}

func declareDelay(ch *amqp.Channel, name string) error {
	return ch.ExchangeDeclare(name, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": amqp.ExchangeTopic})
}
