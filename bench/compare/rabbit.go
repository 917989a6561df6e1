package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// rabbit is a connection for publishing with confirms, made anew when it is gone.
type rabbit struct {
	url string

	mu   sync.Mutex
	conn *amqp091.Connection
	ch   *amqp091.Channel
}

const rabbitTimeout = 5 * time.Second

// publish returns when the broker has confirmed. It tries three times.
func (r *rabbit) publish(ctx context.Context, exchange, key string, m amqp091.Publishing) error {
	m.DeliveryMode = amqp091.Persistent
	var err error
	for range 3 {
		if err = r.once(ctx, exchange, key, m); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return err
}

func (r *rabbit) once(ctx context.Context, exchange, key string, m amqp091.Publishing) error {
	ctx, cancel := context.WithTimeout(ctx, rabbitTimeout)
	defer cancel()
	ch, err := r.channel()
	if err != nil {
		return err
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
	if err != nil {
		return err
	}
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		return fmt.Errorf("not confirmed: %w", err)
	}
	return nil
}

func (r *rabbit) channel() (*amqp091.Channel, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ch != nil && !r.ch.IsClosed() {
		return r.ch, nil
	}
	if r.conn == nil || r.conn.IsClosed() {
		conn, err := dial(r.url)
		if err != nil {
			return nil, err
		}
		r.conn = conn
	}
	ch, err := r.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	r.ch = ch
	return ch, nil
}

func dial(url string) (*amqp091.Connection, error) {
	return amqp091.DialConfig(url, amqp091.Config{Heartbeat: 5 * time.Second, Dial: amqp091.DefaultDial(rabbitTimeout)})
}

// consume declares what declare makes, and gives deliveries of the queue to take, eight at a time, until ctx ends. It begins anew when the connection is
// gone. What take returns an error for is given back.
func consume(ctx context.Context, e env, queue string, declare func(ch *amqp091.Channel) error, take func(ctx context.Context, body string) error) error {
	for ctx.Err() == nil {
		if err := consumeOnce(ctx, e.amqpURL, queue, declare, take); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "consume", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func consumeOnce(ctx context.Context, url, queue string, declare func(ch *amqp091.Channel) error, take func(ctx context.Context, body string) error) error {
	return onChannel(url, func(ch *amqp091.Channel) error {
		if err := declare(ch); err != nil {
			return err
		}
		if err := ch.Qos(50, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		return each(ctx, 8, deliveries, func(d amqp091.Delivery) {
			if err := take(ctx, string(d.Body)); err != nil {
				_ = d.Nack(false, true)
				return
			}
			_ = d.Ack(false)
		})
	})
}

// closing is the queue from which a contender closes orders.
func (e env) closing() string { return e.name + ".close" }

func (e env) declareClosing(ch *amqp091.Channel) error {
	_, err := ch.QueueDeclare(e.closing(), true, false, false, false, nil)
	return err
}

// onChannel does something on a connection of its own.
func onChannel(url string, do func(ch *amqp091.Channel) error) error {
	conn, err := dial(url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}
