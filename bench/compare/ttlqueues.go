package main

import (
	"context"
	"errors"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// ttlQueues has a queue with a time to live for each kind of order, which dead-letters into the queue from which orders are closed.
type ttlQueues struct {
	plainly
	env

	publisher *rabbit
}

// declare makes all queues. One that is there with another time to live stays as it is: to delete it would lose what is in it.
func (q *ttlQueues) declare(ch *amqp091.Channel) error {
	if err := q.declareClosing(ch); err != nil {
		return err
	}
	for kind, timeout := range q.timeouts {
		err := onChannel(q.amqpURL, func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(q.name+".wait."+kind, true, false, false, false, amqp091.Table{
				"x-message-ttl": timeout.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": q.closing(),
			})
			return err
		})
		if refused, is := errors.AsType[*amqp091.Error](err); is && refused.Code == amqp091.PreconditionFailed {
			q.log.Warn("the queue keeps its old time to live", "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (q *ttlQueues) Setup(context.Context) error { return onChannel(q.amqpURL, q.declare) }

func (q *ttlQueues) Placed(ctx context.Context, o order) error {
	return q.publisher.publish(ctx, "", q.name+".wait."+o.Kind, amqp091.Publishing{Body: []byte(o.No), Timestamp: time.Now()})
}

func (q *ttlQueues) Work(ctx context.Context) error {
	return consume(ctx, q.env, q.closing(), q.declare, q.closeOne)
}
