package rabbitmq

import (
	"context"
	"errors"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"
)

var errOldEpoch = errors.New("the ledger has another broker epoch than this connection")

// check makes sure that what s publishes into is there, and makes bindings again that somebody has removed: some twenty frames (with
// tiers, as many more for each), on a channel of their own. An error says that s must end, because another session may not be the same: what
// held the messages is gone, or another publisher has found that and raised the epoch, and the ledger takes nothing more of this one.
//
// It finds neither an exchange that was deleted and made again since the last check, nor a plugin that was disabled and enabled.
func (p *Publisher) check(ctx context.Context, s *session) error {
	if s.conn.isBlocked() {
		return nil // and reads nothing
	}
	// A database that cannot be read has no later epoch to tell.
	if epoch, err := p.epochs.Epoch(ctx); err == nil && epoch != s.epoch {
		return errOldEpoch
	}
	err := s.conn.aside(ctx, func(ch *amqp.Channel) error {
		err := s.strategy.inspect(ctx, s.conn, ch)
		if err == nil {
			if err = p.broker.declareDelivery(ctx, s.conn, ch); err != nil {
				return err
			}
			err = p.met(ctx, s.strategy.mend(ctx, s.conn, ch))
		}
		return err
	})
	// It may also be that <ns>.deliver was deleted in this moment, which the next check makes again.
	gone := isCode(err, amqp.NotFound) && isCode(s.conn.aside(ctx, func(ch *amqp.Channel) error {
		return s.strategy.inspect(ctx, s.conn, ch)
	}), amqp.NotFound)
	if gone || isCode(err, amqp.CommandInvalid) {
		return err
	}
	if err != nil && !s.over() && ctx.Err() == nil {
		p.logs.pass(p.broker.cfg.Log).LogAttrs(ctx, slog.LevelWarn, "exchanges and bindings could not be checked", slog.Any("error", err))
	}
	return nil
}
