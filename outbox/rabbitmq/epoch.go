package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Epochs is the ledger's count of the broker's lives.
type Epochs interface {
	// Epoch returns the current epoch.
	Epoch(ctx context.Context) (int64, error)
	// Raise makes the epoch from+1 if it still is from, and returns the epoch that holds then. empty says that the broker
	// has lost everything, not only what it kept in memory.
	Raise(ctx context.Context, from int64, empty bool) (int64, error)
}

// awaitEpoch finds out whether the broker is the one it was and returns the epoch of s. A durable classic queue holds one
// non-persistent message that nobody consumes: it is there in the same life, gone after a restart, and the queue with it on
// an empty broker.
//
// The epoch is read before the queue is looked at. Whoever raises it in between makes this connection's epoch too old,
// which costs duplicates; the other order could make it too new, which would hide a loss.
func (p *Publisher) awaitEpoch(ctx context.Context, s *session) (int64, error) {
	epoch, err := p.epochs.Epoch(ctx)
	if err != nil {
		return 0, fmt.Errorf("read broker epoch: %w", err)
	}
	queue := p.broker.epoch()
	probe, err := s.conn.channel(ctx) // a queue that is not there ends it
	if err != nil {
		return 0, err
	}
	q, err := inspect(ctx, s.conn, probe, queue)
	switch {
	case err == nil && q.Messages > 0:
		return epoch, s.conn.call(ctx, "close channel", probe.Close)
	case err != nil && !isCode(err, amqp.NotFound):
		return 0, err
	}
	empty := err != nil
	if !empty || p.unmarked.Load() != epoch {
		from := epoch
		if epoch, err = p.epochs.Raise(ctx, from, empty); err != nil {
			return 0, fmt.Errorf("raise broker epoch: %w", err)
		}
		p.broker.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "broker has started a new life",
			slog.Bool("empty", empty), slog.Int64("epoch", epoch), slog.Bool("raised_here", epoch == from+1))
	}
	// If we die here, the next connection finds no mark and raises the epoch once more, which costs duplicates only.
	err = p.mark(ctx, s)
	if isCode(err, amqp.NotFound) {
		// It can be neither found nor made: the cluster's node that has it is down. Publishing goes on, in an epoch that was
		// raised for that once; when the node is back the queue is there and empty, and the epoch is raised again.
		p.unmarked.Store(epoch)
		p.broker.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "broker epoch has no mark", slog.Int64("epoch", epoch), slog.Any("error", err))
		return epoch, nil
	}
	return epoch, err
}

// mark puts the message into the epoch queue, on the connection whose life it stands for.
func (p *Publisher) mark(ctx context.Context, s *session) error {
	queue := p.broker.epoch()
	ch, err := s.conn.channel(ctx)
	if err != nil {
		return err
	}
	d := declaration{ctx: ctx, c: s.conn, ch: ch}
	d.queue(queue, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic, amqp.QueueMaxLenArg: int64(1)})
	if d.err != nil {
		return d.err
	}
	if err := s.conn.call(ctx, "close channel", ch.Close); err != nil {
		return err
	}
	sent, err := s.ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Transient})
	if err != nil {
		return fmt.Errorf("publish to queue %s: %w", queue, err)
	}
	if err := s.confirmed(ctx, sent); err != nil {
		return fmt.Errorf("publish to queue %s: %w", queue, err)
	}
	return nil
}
