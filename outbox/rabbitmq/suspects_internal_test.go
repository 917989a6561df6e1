package rabbitmq

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
)

func TestIsGuilt_TellsMessagesFromOutages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason amqp.Error
		lost   error
		want   bool
	}{
		{amqp.Error{Code: amqp.PreconditionFailed, Server: true}, nil, true},
		{amqp.Error{Code: amqp.ContentTooLarge, Server: true}, nil, true},
		{amqp.Error{Code: amqp.FrameError, Server: true}, nil, true},
		{amqp.Error{Code: amqp.SyntaxError, Server: true}, nil, true},
		{amqp.Error{Code: amqp.InternalError, Server: true}, nil, true},
		{amqp.Error{Code: amqp.InternalError, Server: true}, io.EOF, true}, // the broker closes the socket after it
		{amqp.Error{Code: amqp.ConnectionForced, Server: true}, nil, false},
		{amqp.Error{Code: amqp.NotFound, Server: true}, nil, false},
		{amqp.Error{Code: amqp.AccessRefused, Server: true}, nil, false},
		{amqp.Error{Code: amqp.FrameError}, io.EOF, false}, // amqp091's word for a lost socket
		{amqp.Error{Code: amqp.FrameError}, nil, true},     // and for what it cannot encode
	} {
		require.Equal(t, c.want, isGuilt(&c.reason, c.lost), "%v, %v", c.reason, c.lost)
	}
}

// oneLife is a ledger whose broker never starts anew.
type oneLife struct{}

func (oneLife) Epoch(context.Context) (int64, error)              { return 1, nil }
func (oneLife) Raise(context.Context, int64, bool) (int64, error) { return 1, nil }

// spoiled sends the messages of one topic so that they end the connection, as no check before would let them.
type spoiled struct {
	strategy

	exchange string
}

func (s spoiled) route(p *outbox.Publication, now time.Time) (route, error) {
	if p.Topic == "bad" {
		return route{exchange: s.exchange}, nil
	}
	return s.strategy.route(p, now)
}

// spoil makes every connection of p a spoiled one.
func spoil(p *Publisher, exchange string) {
	choose := p.choose
	p.choose = func(ctx context.Context) (strategy, string, error) {
		s, why, err := choose(ctx)
		return spoiled{s, exchange}, why, err
	}
}

func running(t *testing.T, p *Publisher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func internalPublisher(t *testing.T) *Publisher {
	t.Helper()
	b, err := NewBroker(devtest.AMQP(t), Config{Namespace: devtest.Namespace(t)})
	require.NoError(t, err)
	p, err := NewPublisher(b, oneLife{}, PublisherConfig{})
	require.NoError(t, err)
	return p
}

func batchOf(n int) []outbox.Publication {
	batch := make([]outbox.Publication, n)
	for i := range batch {
		batch[i] = sample()
		batch[i].ID, batch[i].FireAt = int64(i+1), time.Now().Add(time.Hour)
	}
	return batch
}

// The client library closes the whole connection for what it cannot encode.
func TestPublisher_MessageThatTheClientCannotEncodeIsFound(t *testing.T) {
	t.Parallel()
	p := internalPublisher(t)
	spoil(p, strings.Repeat("x", 300))
	running(t, p)
	batch := batchOf(30)
	batch[11].Topic = "bad"
	for i, r := range p.Publish(t.Context(), batch) {
		if i == 11 {
			require.ErrorIs(t, r.Err, outbox.ErrUnpublishable)
			require.ErrorContains(t, r.Err, "exceeds 255 bytes")
			continue
		}
		require.NoError(t, r.Err, "receipt %d", i)
	}
}

// A broken exchange is an outage: it must not make the ledger dead, attempt by attempt.
func TestPublisher_ExchangeThatTakesNothingSpendsFewAttempts(t *testing.T) {
	t.Parallel()
	p := internalPublisher(t)
	spoil(p, strings.Repeat("x", 300))
	running(t, p)
	batch := batchOf(40)
	for i := range batch {
		if i != 20 {
			batch[i].Topic = "bad"
		}
	}
	outcomes := func() map[error]int {
		out := map[error]int{}
		for i, r := range p.Publish(t.Context(), batch) {
			if i == 20 { // may be confirmed before a neighbour ends the channel
				require.True(t, r.Err == nil || errors.Is(r.Err, outbox.ErrNacked), "%v", r.Err)
				continue
			}
			for _, kind := range []error{nil, outbox.ErrUnpublishable, outbox.ErrNacked} {
				if errors.Is(r.Err, kind) {
					out[kind]++
				}
			}
		}
		return out
	}
	require.Equal(t, map[error]int{outbox.ErrUnpublishable: maxBlamed - 1, outbox.ErrNacked: 40 - maxBlamed}, outcomes())
	require.Equal(t, map[error]int{outbox.ErrNacked: 39}, outcomes(), "no more, however often it is tried")

	p.blame.confirmed(strings.Repeat("x", 300))
	require.False(t, p.blame.some.Load())
	require.Equal(t, map[error]int{outbox.ErrUnpublishable: maxBlamed - 1, outbox.ErrNacked: 40 - maxBlamed}, outcomes())
}

func TestBlame_OneMessageIsNoBrokenExchangeHoweverOftenItEndsTheChannel(t *testing.T) {
	t.Parallel()
	var b blame
	for range 10 * maxBlamed {
		require.False(t, b.add("e", 1))
	}
	for id := range int64(maxBlamed - 2) {
		require.False(t, b.add("e", id+2))
	}
	require.False(t, b.add("other", 100))
	require.True(t, b.add("e", 100))
	b.confirmed("other")
	require.True(t, b.add("e", 1))
	b.confirmed("e")
	require.False(t, b.add("e", 1))
}

// The broker closes the whole connection with 541 for a delay that is no number. Whoever sent it, the others are confirmed.
func TestPublisher_NeighboursOfAConnectionErrorAreConfirmed(t *testing.T) {
	t.Parallel()
	p := internalPublisher(t)
	running(t, p)
	s, err := p.awaitSession(t.Context())
	require.NoError(t, err)
	killer, err := s.conn.channel(t.Context())
	require.NoError(t, err)
	receipts := make(chan []outbox.Receipt, 1)
	batch := batchOf(400)
	go func() { receipts <- p.Publish(t.Context(), batch) }()
	require.NoError(t, killer.Publish(p.broker.delay(), "t", false, false, amqp.Publishing{Headers: amqp.Table{headerDelay: "soon"}}))
	for i, r := range <-receipts {
		require.NoError(t, r.Err, "receipt %d", i)
	}
	<-s.ended
	require.ErrorContains(t, s.cause, "541")
	require.True(t, s.guilt)
}

func TestPublisher_SuspectsOfAnEndedContextAreUnconfirmed(t *testing.T) {
	t.Parallel()
	p := internalPublisher(t)
	p.alone <- struct{}{} // somebody else is trying
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	receipts := make([]outbox.Receipt, 2)
	p.tryAlone(ctx, batchOf(2), []int{0, 1}, receipts)
	for _, r := range receipts {
		require.ErrorIs(t, r.Err, outbox.ErrUnconfirmed)
		require.ErrorIs(t, r.Err, context.Canceled)
	}
}
