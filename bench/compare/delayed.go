package main

import (
	"context"

	"github.com/rabbitmq/amqp091-go"
)

// delayed publishes each order to a delayed exchange once it is placed.
type delayed struct {
	plainly
	env

	publisher *rabbit
}

func (q *delayed) declare(ch *amqp091.Channel) error {
	if err := q.declareClosing(ch); err != nil {
		return err
	}
	if err := ch.ExchangeDeclare(q.name+".delay", "x-delayed-message", true, false, false, false, amqp091.Table{"x-delayed-type": "direct"}); err != nil {
		return err
	}
	return ch.QueueBind(q.closing(), "close", q.name+".delay", false, nil)
}

func (q *delayed) Setup(context.Context) error { return onChannel(q.amqpURL, q.declare) }

func (q *delayed) Placed(ctx context.Context, o order) error {
	return q.publisher.publish(ctx, q.name+".delay", "close", amqp091.Publishing{Body: []byte(o.No), Headers: amqp091.Table{"x-delay": o.Timeout.Milliseconds()}})
}

func (q *delayed) Work(ctx context.Context) error {
	return consume(ctx, q.env, q.closing(), q.declare, q.closeOne)
}
