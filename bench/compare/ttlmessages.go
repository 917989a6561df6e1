package main

import (
	"context"
	"strconv"

	"github.com/rabbitmq/amqp091-go"
)

// ttlMessages has one queue for all orders, in which each message has a time to live of its own, and which dead-letters into the queue from which
// orders are closed.
type ttlMessages struct {
	plainly
	env

	publisher *rabbit
}

func (q *ttlMessages) declare(ch *amqp091.Channel) error {
	if err := q.declareClosing(ch); err != nil {
		return err
	}
	_, err := ch.QueueDeclare(q.name+".wait", true, false, false, false, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": q.closing()})
	return err
}

func (q *ttlMessages) Setup(context.Context) error { return onChannel(q.amqpURL, q.declare) }

func (q *ttlMessages) Placed(ctx context.Context, o order) error {
	return q.publisher.publish(ctx, "", q.name+".wait", amqp091.Publishing{Body: []byte(o.No), Expiration: strconv.FormatInt(o.Timeout.Milliseconds(), 10)})
}

func (q *ttlMessages) Work(ctx context.Context) error {
	return consume(ctx, q.env, q.closing(), q.declare, q.closeOne)
}
