package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	window    = 1000            // confirms in flight of a bare publisher
	brokerEnd = 5 * time.Minute // every connection of ours is over by then
)

// withBroker opens a connection and a channel for use, and closes them, as withConnection does.
func withBroker(ctx context.Context, url string, use func(ch *amqp.Channel) error) error {
	return withConnection(ctx, url, func(conn *amqp.Connection) error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		return use(ch)
	})
}

// withConnection opens a connection for use, and closes it. Nothing on it hangs: the socket's deadline is brokerEnd, and it is closed when ctx
// ends.
func withConnection(ctx context.Context, url string, use func(conn *amqp.Connection) error) error {
	var raw net.Conn
	conn, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: 10 * time.Second,
		Dial: func(network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			raw = c
			return c, c.SetDeadline(time.Now().Add(brokerEnd))
		},
	})
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	return errors.Join(use(conn), conn.Close())
}

// bare publishes n messages on one channel with amqp091 alone, up to 1,000 confirms in flight, and returns how many a
// second were confirmed, from the first publish to the last confirm.
func bare(ctx context.Context, ch *amqp.Channel, exchange string, n int, message func(i int) amqp.Publishing) (float64, error) {
	if err := ch.Confirm(false); err != nil {
		return 0, err
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, window))
	confirmed := 0
	await := func() error {
		c, ok := <-confirms
		switch {
		case !ok:
			return errors.New("the channel closed before every confirm was there")
		case !c.Ack:
			return errors.New("the broker refused a message")
		}
		confirmed++
		return nil
	}
	began := time.Now()
	for i := range n {
		if i-confirmed == window {
			if err := await(); err != nil {
				return 0, err
			}
		}
		if err := ch.PublishWithContext(ctx, exchange, topic, false, false, message(i)); err != nil {
			return 0, err
		}
	}
	for confirmed < n {
		if err := await(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// wireMessage has the size and the headers of what the relay sends for the row i: due in ten minutes.
func wireMessage() func(i int) amqp.Publishing {
	const store = "5f0e6d6a-6f0b-4d5a-9d0c-2b1a3c4d5e6f"
	body := payload()
	due := time.Now().Add(dueIn)
	return func(i int) amqp.Publishing {
		return amqp.Publishing{
			Headers: amqp.Table{
				"duebox-id":         int64(i + 1),
				"duebox-store":      store,
				"duebox-key":        keyOf(i),
				"duebox-generation": int64(1),
				"duebox-attempt":    int64(0),
				"duebox-due":        due.UnixMicro(),
				"x-delay":           time.Until(due).Milliseconds(),
			},
			ContentType:  "application/octet-stream",
			DeliveryMode: amqp.Persistent,
			MessageId:    fmt.Sprintf("%s-%d", store, i+1),
			Body:         body,
		}
	}
}
