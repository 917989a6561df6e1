package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/duebox/duebox/outbox"
)

// tryAlone publishes the suspects of a session that something they hold ended. Each gets a connection on which nothing else
// is unconfirmed, and waits for its confirm before the next: what ends that connection is guilty, and the traffic of others
// goes on meanwhile. Concurrent callers take turns.
func (p *Publisher) tryAlone(ctx context.Context, batch []outbox.Publication, suspects []int, receipts []outbox.Receipt) {
	if len(suspects) == 0 {
		return
	}
	select {
	case p.alone <- struct{}{}:
		defer func() { <-p.alone }()
	case <-ctx.Done():
	}
	p.broker.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "a message has ended the publishing channel, trying each alone", slog.Int("suspects", len(suspects)))
	var s *session
	defer func() {
		if s != nil {
			s.close(ctx)
		}
	}()
	broken := false
	for _, i := range suspects {
		if broken {
			receipts[i].Err = errBroken
			continue
		}
		if s == nil {
			var err error
			if s, err = p.openAlone(ctx); err != nil {
				receipts[i].Err = fmt.Errorf("%w: %w", outbox.ErrUnconfirmed, err)
				continue
			}
		}
		receipts[i] = s.publishAlone(ctx, &batch[i])
		broken = errors.Is(receipts[i].Err, errBroken)
		if s.over() {
			s.close(ctx)
			s = nil
		}
	}
}

// openAlone opens a session, again and again until ctx ends.
func (p *Publisher) openAlone(ctx context.Context) (*session, error) {
	for pauses := newPauses(); ctx.Err() == nil; {
		s, err := p.open(ctx)
		if err == nil {
			return s, nil
		}
		p.logs.pass(p.broker.cfg.Log).LogAttrs(ctx, slog.LevelWarn, "no connection for publishing", slog.Any("error", err))
		pause(ctx, pauses.NextBackOff(), nil)
	}
	return nil, ctx.Err()
}

// errBroken lets the relay wait and try again without spending attempts.
var errBroken = fmt.Errorf("%w: every message ends the channel, so the exchange must be broken", outbox.ErrNacked)

// publishAlone publishes on a session that nothing else uses.
func (s *session) publishAlone(ctx context.Context, p *outbox.Publication) outbox.Receipt {
	if !s.ready(ctx) {
		return outbox.Receipt{Err: fmt.Errorf("%w: the connection was lost", outbox.ErrUnconfirmed)}
	}
	f, err := s.send(&encoder{frameMax: s.conn.amqp.Config.FrameSize}, p)
	if err == nil {
		err = s.confirmed(ctx, f.confirm)
	}
	switch {
	case err == nil:
		s.blame.confirmed(f.exchange)
	case errors.Is(err, errSuspect) && s.blame.add(f.exchange, p.ID):
		err = fmt.Errorf("%w (%w)", errBroken, s.cause)
	case errors.Is(err, errSuspect):
		err = fmt.Errorf("%w: %w", outbox.ErrUnpublishable, s.cause)
	}
	return outbox.Receipt{Err: err, Epoch: s.epoch}
}
