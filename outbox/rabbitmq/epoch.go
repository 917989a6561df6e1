package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Epochs is the ledger's count of the broker's lives. A life ends when the broker loses messages that it had confirmed.
type Epochs interface {
	// Epoch returns the current epoch.
	Epoch(ctx context.Context) (int64, error)
	// Raise makes the epoch from+1 if it still is from, and returns the epoch that holds then. empty says that the broker
	// has lost everything that it held, not only what it kept in memory.
	Raise(ctx context.Context, from int64, empty bool) (int64, error)
}

// memory is what the broker shows of its past. A durable classic queue holds one non-persistent message that nobody consumes,
// the mark: it is there in the same life, gone after a restart, and the queue with it on an empty broker (or one whose node has
// another name now). A broker may also live on and lose what it held: when somebody deletes what holds the messages (an exchange, a tier's queue), or disables
// the plugin. The latter leaves no trace at all once the plugin is back, so whoever meets a broker without it takes the mark away.
type memory struct {
	queue  bool // the mark's queue is there
	mark   bool // the mark is in it
	holder bool // what holds delayed messages is there
}

// whole says that nothing was lost since the mark was put.
func (m memory) whole() bool { return m.mark && m.holder }

func (p *Publisher) recall(ctx context.Context, s *session) (m memory, err error) {
	c := s.conn
	err = c.aside(ctx, func(ch *amqp.Channel) error {
		q, err := inspect(ctx, c, ch, p.broker.epoch())
		m.queue, m.mark = err == nil, err == nil && q.Messages > 0
		return err
	})
	if err == nil || isCode(err, amqp.NotFound) {
		err = c.aside(ctx, func(ch *amqp.Channel) error { return s.strategy.inspect(ctx, c, ch) })
		m.holder = err == nil
	}
	if isCode(err, amqp.NotFound) {
		err = nil
	}
	return m, err
}

// join finds out whether the broker is the one it was, makes what the strategy needs and returns the epoch of s. Of all
// publishers that meet a new life, one raises the epoch; the others wait until it has put the mark.
func (p *Publisher) join(ctx context.Context, s *session) (int64, error) {
	start := time.Now()
	for pauses := newPauses(); ; {
		m, err := p.recall(ctx, s)
		switch {
		case err != nil:
			return 0, err
		case m.whole():
			return p.goOn(ctx, s)
		}
		unlock, err := p.lock(ctx, s.conn)
		if err == nil {
			defer unlock()
			return p.begin(ctx, s)
		}
		switch {
		case !isCode(err, amqp.ResourceLocked):
			return 0, err
		case time.Since(start) > 3*p.broker.cfg.CallTimeout:
			return p.begin(ctx, s) // who has the lock may be frozen; going on without it costs duplicates at worst
		case !pause(ctx, pauses.NextBackOff(), s.ended):
			return 0, fmt.Errorf("wait for another publisher: %w", err)
		}
	}
}

// goOn joins the life that the broker is marked for. What is published after the epoch was read reaches the broker after all
// that the epoch stands for, or not at all: this connection ends with the broker's life.
func (p *Publisher) goOn(ctx context.Context, s *session) (int64, error) {
	p.unmarked.Store(false)
	// Not declared: what holds the messages was there just now, and if it is not any more, that is a loss and must not be hidden.
	if err := p.met(ctx, s.strategy.mend(ctx, s.conn, s.ch)); err != nil {
		return 0, err
	}
	return p.epoch(ctx)
}

// declare makes what the strategy needs.
func (p *Publisher) declare(ctx context.Context, s *session, ch *amqp.Channel) error {
	return p.met(ctx, s.strategy.declare(ctx, s.conn, ch))
}

// met is err. If that says that the broker, which has closed the connection, is without the plugin, the mark is taken away.
func (p *Publisher) met(ctx context.Context, err error) error {
	if !errors.Is(err, ErrNoDelayedExchange) {
		return err
	}
	forgotten := p.broker.visit(ctx, "epoch", func(c *connection, ch *amqp.Channel) error { return p.forget(ctx, c, ch) })
	return errors.Join(err, forgotten) // if that went wrong, the next attempt ends here again
}

func (p *Publisher) epoch(ctx context.Context) (int64, error) {
	epoch, err := p.epochs.Epoch(ctx)
	if err != nil {
		return 0, fmt.Errorf("read broker epoch: %w", err)
	}
	return epoch, nil
}

// begin raises the epoch for a new life of the broker and marks it, unless another has done so by now. Nothing is raised for a
// broker that lacks what the strategy needs. If we die on the way, the next connection finds no mark and raises the epoch
// (once more), which costs duplicates only.
//
// The epoch is read before the broker is looked at: whoever raises it in between, without the lock, has raised it for us.
func (p *Publisher) begin(ctx context.Context, s *session) (int64, error) {
	epoch, err := p.epoch(ctx)
	if err != nil {
		return 0, err
	}
	m, err := p.recall(ctx, s)
	switch {
	case err != nil:
		return 0, err
	case m.whole():
		return p.goOn(ctx, s)
	case m.mark: // if we die after the exchange was made and before the raise, the mark must not be there
		if err := s.conn.aside(ctx, func(ch *amqp.Channel) error { return p.forget(ctx, s.conn, ch) }); err != nil {
			return 0, err
		}
		m.queue = false
	}
	if err := p.declare(ctx, s, s.ch); err != nil {
		return 0, err
	}
	if p.unmarked.Load() && !m.queue && m.holder {
		// Raised once for a queue that is out of reach, as below. Unless it can be made now, it still is.
		err := p.declareMark(ctx, s.conn)
		if isCode(err, amqp.NotFound) {
			return epoch, nil
		}
		if err != nil {
			return 0, err
		}
	}
	empty := !m.queue || !m.holder
	if !empty && s.strategy.name() != Plugin {
		// Whatever is in there, or was until now, another strategy has published ahead.
		if empty, err = p.hasDelay(ctx, s.conn); err != nil {
			return 0, err
		}
	}
	from := epoch
	if epoch, err = p.epochs.Raise(ctx, from, empty); err != nil {
		return 0, fmt.Errorf("raise broker epoch: %w", err)
	}
	p.broker.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "broker has started a new life", slog.Int64("epoch", epoch),
		slog.Bool("raised_here", epoch == from+1), slog.Bool("empty", empty), slog.Bool("holder_missing", !m.holder))
	err = p.mark(ctx, s, m.queue)
	p.unmarked.Store(isCode(err, amqp.NotFound))
	if isCode(err, amqp.NotFound) {
		// It can be neither found nor made: the cluster's node that has it is down. Publishing goes on, in an epoch that was
		// raised for that once; when the node is back the queue is there and empty, and the epoch is raised again.
		p.broker.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "broker epoch has no mark", slog.Int64("epoch", epoch), slog.Any("error", err))
		return epoch, nil
	}
	return epoch, err
}

// hasDelay tells whether there is a delayed exchange. A broker without the plugin still answers for one that was declared before.
func (p *Publisher) hasDelay(ctx context.Context, c *connection) (bool, error) {
	err := c.aside(ctx, func(ch *amqp.Channel) error { return p.broker.inspectDelay(ctx, c, ch) })
	if isCode(err, amqp.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// mark puts the message into the epoch queue, on the connection whose life it stands for.
func (p *Publisher) mark(ctx context.Context, s *session, hasQueue bool) error {
	if !hasQueue {
		if err := p.declareMark(ctx, s.conn); err != nil {
			return err
		}
	}
	queue := p.broker.epoch()
	sent, err := s.ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Transient})
	if err != nil {
		return fmt.Errorf("publish to queue %s: %w", queue, err)
	}
	if err := s.confirmed(ctx, sent); err != nil {
		return fmt.Errorf("publish to queue %s: %w", queue, err)
	}
	return nil
}

// forget takes the mark away: the next connection raises the epoch.
func (p *Publisher) forget(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return c.remove(ctx, ch, p.broker.epoch())
}

func (p *Publisher) declareMark(ctx context.Context, c *connection) error {
	return c.aside(ctx, func(ch *amqp.Channel) error {
		d := declaration{ctx: ctx, c: c, ch: ch}
		d.queue(p.broker.epoch(), amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic, amqp.QueueMaxLenArg: int64(1)})
		return d.err
	})
}

// lock keeps the other publishers of the namespace from beginning a life of this broker: a queue that belongs to one
// connection. It ends with the connection at the latest. Error 405 says that another publisher has it.
func (p *Publisher) lock(ctx context.Context, c *connection) (unlock func(), err error) {
	queue := p.broker.epochLock()
	err = c.aside(ctx, func(ch *amqp.Channel) error {
		return c.call(ctx, "declare queue "+queue, func() error {
			_, err := ch.QueueDeclare(queue, false, false, true, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
			return err
		})
	})
	return func() {
		_ = c.aside(ctx, func(ch *amqp.Channel) error { return c.remove(ctx, ch, queue) })
	}, err
}
