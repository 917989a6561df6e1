package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// session is one connection with one confirming channel, in one life of the broker. It ends with either and is not mended.
type session struct {
	conn     *connection
	ch       *amqp.Channel
	strategy strategy
	why      string // that one
	epoch    int64
	patience time.Duration // for a confirm
	blame    *blame

	ended chan struct{} // closed when the channel has ended
	cause error         // why; read it after ended
	guilt bool          // something that was published ended it; read it after ended
}

var errClosedHere = errors.New("closed from this side")

// open makes a session: connect, declare everything, join the broker's life.
func (p *Publisher) open(ctx context.Context) (_ *session, err error) {
	strategy, why, err := p.choose(ctx)
	if err != nil {
		return nil, err
	}
	log := func(blocked bool, reason string) { p.onBlocked(ctx, blocked, reason) }
	conn, err := p.broker.dial(ctx, RolePublisher, log)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, strategy: strategy, why: why, patience: p.cfg.ConfirmTimeout, blame: &p.blame, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			s.conn.close(ctx)
		}
	}()
	if s.ch, err = conn.channel(ctx); err != nil {
		return nil, err
	}
	closed := s.ch.NotifyClose(make(chan *amqp.Error, 1))
	conn.idle.Go(func() { s.watch(closed) })
	if err := p.broker.declareDelivery(ctx, conn, s.ch); err != nil {
		return nil, err
	}
	if err := p.declareWork(ctx, conn); err != nil {
		return nil, err
	}
	if err := conn.call(ctx, "ask for confirms", func() error { return s.ch.Confirm(false) }); err != nil {
		return nil, err
	}
	if s.epoch, err = p.join(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// declareWork makes the work queues of the publisher's topics. One that exists with other arguments takes messages all the same;
// it is the consumer that cannot go on.
func (p *Publisher) declareWork(ctx context.Context, conn *connection) error {
	for _, topic := range p.cfg.Topics {
		err := conn.aside(ctx, func(ch *amqp.Channel) error {
			_, err := p.broker.declareWork(ctx, conn, ch, topic)
			return err
		})
		if err != nil && !errors.Is(err, ErrMismatch) {
			return err
		}
	}
	return nil
}

// watch notes why the channel ended.
func (s *session) watch(closed <-chan *amqp.Error) {
	defer close(s.ended)
	reason := <-closed // at most one, and also the connection's; nil: closed from this side
	lost := s.conn.wire.lost()
	switch {
	case reason == nil && lost == nil:
		s.cause = errClosedHere
	case reason == nil:
		s.cause = lost
	default:
		s.cause = reason
		s.guilt = isGuilt(reason, lost)
	}
}

// isGuilt tells an end that a message can have caused from one that none can: by what is said of the end of the channel (reason)
// and of the end of the socket (lost).
func isGuilt(reason *amqp.Error, lost error) bool {
	if !reason.Server {
		// amqp091 says the same of a lost socket and of a message that it cannot encode.
		return lost == nil
	}
	switch reason.Code {
	case amqp.ConnectionForced, // an operator, or a node that shuts down
		amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, // something is wrong with an exchange, for every message
		amqp.CommandInvalid: // its plugin was disabled
		return false
	}
	return true
}

// flight is a publication that was sent, or may have been.
type flight struct {
	index    int
	exchange string
	confirm  *amqp.DeferredConfirmation // nil: the channel ended while it was sent
}

// publish sends batch[from:] and waits for the confirms, with at most window of them outstanding. It writes receipts
// and returns the index of the first publication that it has not sent, because the session or ctx ended. Publications
// that may have ended the session get no receipt; they are appended to suspects.
func (s *session) publish(ctx context.Context, batch []outbox.Publication, from, window int, receipts []outbox.Receipt, suspects []int) (int, []int) {
	e := encoder{frameMax: s.conn.amqp.Config.FrameSize}
	flights := make([]flight, 0, len(batch)-from)
	settle := func(f flight) {
		err := s.confirmed(ctx, f.confirm)
		if errors.Is(err, errSuspect) {
			suspects = append(suspects, f.index)
			return
		}
		if err == nil {
			s.blame.confirmed(f.exchange)
		}
		receipts[f.index] = outbox.Receipt{Err: err, Epoch: s.epoch}
	}
	next, settled := from, 0
	for ; next < len(batch); next++ {
		if len(flights)-settled >= window {
			settle(flights[settled])
			settled++
		}
		if !s.ready(ctx) {
			break
		}
		f, err := s.send(&e, &batch[next])
		if err != nil {
			receipts[next].Err = err
			continue
		}
		f.index = next
		flights = append(flights, f)
	}
	for _, f := range flights[settled:] {
		settle(f)
	}
	return next, suspects
}

// ready waits until the broker takes messages; false when the session or ctx has ended.
func (s *session) ready(ctx context.Context) bool {
	if s.conn.wire.awaitRoom(ctx) != nil {
		return false
	}
	select {
	case <-s.conn.taking():
	case <-s.ended:
	case <-ctx.Done():
	}
	return !s.over() && ctx.Err() == nil
}

func (s *session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// send hands one publication to the channel. An error means that nothing was sent.
func (s *session) send(e *encoder, p *outbox.Publication) (flight, error) {
	way, err := s.strategy.route(p, time.Now())
	if err != nil {
		return flight{}, err
	}
	message, err := e.encode(p, way.delay)
	if err != nil {
		return flight{}, err
	}
	confirm, err := s.ch.PublishWithDeferredConfirm(way.exchange, p.Topic, false, false, message)
	if err != nil {
		return flight{exchange: way.exchange}, nil //nolint:nilerr // some of it may be on its way; how the session ended tells more
	}
	return flight{exchange: way.exchange, confirm: confirm}, nil
}

// errSuspect says that a publication without confirm may have ended the session.
var errSuspect = errors.New("the channel ended without a confirm")

// confirmed waits for a confirm. A broker that owes one for too long, without having said that it is blocked, is left. The error
// wraps outbox.ErrNacked, outbox.ErrUnconfirmed or errSuspect.
func (s *session) confirmed(ctx context.Context, confirm *amqp.DeferredConfirmation) error {
	if confirm != nil {
		if err := s.await(ctx, confirm); err != nil {
			return err
		}
		switch {
		case confirm.Acked():
			return nil
		case !s.ch.IsClosed(): // amqp091 marks the channel closed before it gives up confirms
			return outbox.ErrNacked
		}
	}
	// The channel is closed; the reason arrives at once.
	select {
	case <-s.ended:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", outbox.ErrUnconfirmed, ctx.Err())
	}
	if s.guilt {
		return errSuspect
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnconfirmed, s.cause)
}

func (s *session) await(ctx context.Context, confirm *amqp.DeferredConfirmation) error {
	select {
	case <-confirm.Done(): // mostly: they come in order
		return nil
	default:
	}
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	for {
		select {
		case <-confirm.Done():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", outbox.ErrUnconfirmed, ctx.Err())
		case <-timer.C:
			if s.conn.isBlocked() {
				timer.Reset(s.patience)
				continue
			}
			s.conn.wire.kill(errNoAnswer) // resolves the confirm
		}
	}
}

// close ends the session. What waits for a confirm gets outbox.ErrUnconfirmed.
func (s *session) close(ctx context.Context) {
	s.conn.close(ctx)
	<-s.ended
}
