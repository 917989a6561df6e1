package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// mill publishes a delayed message into Watermill's table in the order's transaction; its subscriber asks the table for what is over.
type mill struct {
	plainly
	env
}

const millTopic = "order_expire"

func newWatermill(e env) *mill { return &mill{env: e} }

func (m *mill) subscriber() (message.Subscriber, error) {
	return wsql.NewDelayedMySQLSubscriber(wsql.BeginnerFromStdSQL(m.db), wsql.DelayedMySQLSubscriberConfig{DeleteOnAck: true})
}

func (m *mill) Setup(context.Context) error {
	s, err := m.subscriber()
	if err != nil {
		return err
	}
	initializer, ok := s.(message.SubscribeInitializer)
	if !ok {
		return errors.New("the subscriber makes no table")
	}
	return errors.Join(initializer.SubscribeInitialize(millTopic), s.Close())
}

func (m *mill) Placing(ctx context.Context, tx *sql.Tx, o order) error {
	publisher, err := wsql.NewDelayedMySQLPublisher(wsql.TxFromStdSQL(tx), wsql.DelayedMySQLPublisherConfig{
		// The table is there, and to make it would end the transaction.
		OverridePublisherConfig: func(c *wsql.PublisherConfig) error {
			c.AutoInitializeSchema = false
			return nil
		},
	})
	if err != nil {
		return err
	}
	payload, err := json.Marshal(o.No)
	if err != nil {
		return err
	}
	msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), payload)
	delay.Message(msg, delay.For(o.Timeout))
	return publisher.Publish(millTopic, msg)
}

// Work subscribes once, as its documentation shows: a subscription holds rows locked that another one would wait for.
func (m *mill) Work(ctx context.Context) error {
	s, err := m.subscriber()
	if err != nil {
		return err
	}
	messages, err := s.Subscribe(ctx, millTopic)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	for msg := range messages {
		var no string
		err := json.Unmarshal(msg.Payload, &no)
		if err == nil {
			err = m.closeOne(ctx, no)
		}
		if err != nil {
			m.log.WarnContext(ctx, "message", "error", err)
			msg.Nack()
			continue
		}
		msg.Ack()
	}
	return s.Close()
}
