package main

import (
	"context"
	"strconv"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// ttlQueues has a queue for each delay, whose messages live that long and are then dead-lettered into the queue from which orders are closed. A timeout
// that is new is a queue that is new; the old one stays, with what waits in it.
type ttlQueues struct {
	plainly
	env

	publisher *rabbit
}

func (q *ttlQueues) declare(ch *amqp091.Channel) error {
	if err := q.declareClosing(ch); err != nil {
		return err
	}
	for _, timeout := range q.timeouts {
		if _, err := ch.QueueDeclare(q.wait(timeout), true, false, false, false, amqp091.Table{
			"x-message-ttl": timeout.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": q.closing(),
		}); err != nil {
			return err
		}
	}
	return nil
}

func (q *ttlQueues) wait(timeout time.Duration) string {
	return q.name + ".wait." + strconv.FormatInt(timeout.Milliseconds(), 10)
}

func (q *ttlQueues) Setup(context.Context) error { return onChannel(q.amqpURL, q.declare) }

func (q *ttlQueues) Placed(ctx context.Context, o order) error {
	return q.publisher.publish(ctx, "", q.wait(o.Timeout), amqp091.Publishing{Body: []byte(o.No)})
}

func (q *ttlQueues) Work(ctx context.Context) error {
	return consume(ctx, q.env, q.closing(), q.declare, q.closeOne)
}
