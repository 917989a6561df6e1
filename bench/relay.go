package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

const (
	namespace = "bench"
	exchange  = namespace + ".delay"
	dueIn     = 10 * time.Minute // of the measured messages: within the horizon, and after the measurement
	horizon   = 20 * time.Minute
	drainEnd  = 3 * time.Minute // bounds one round, far beyond what the slowest machine needs
)

// benchRelay compares one relay that drains a freshly filled ledger, until the last row is settled in the database, with a publisher that
// uses amqp091 alone and no database and sends messages of the same size and headers: with strategy plugin into the same delayed exchange, else
// into the work queue, which is durable and of the type quorum as tiers are.
func benchRelay(strategy rabbitmq.Strategy) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, err := openLedger(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()

		relayed := func() (float64, error) { return drainRound(ctx, s, led, strategy, o.rows, o.lead) }
		into := namespace + ".deliver"
		if strategy == rabbitmq.Plugin {
			into = exchange
		}
		raw := func() (rate float64, err error) {
			if err := emptyBroker(ctx, s); err != nil {
				return 0, err
			}
			err = withBroker(ctx, s.amqp, func(ch *amqp.Channel) error {
				rate, err = bare(ctx, ch, into, o.rows, wireMessage())
				return err
			})
			return rate, err
		}
		// Nobody's first round is counted: files grow and code is loaded.
		if _, err := drainRound(ctx, s, led, strategy, max(1, o.rows/10), o.lead); err != nil {
			return line{}, err
		}
		through, ceiling, err := interleave(o.rounds, relayed, raw)
		if err != nil {
			return line{}, err
		}
		l = compared("relay", fmt.Sprintf("%s: %d rows from the ledger, settled, beside amqp091 alone", strategy, o.rows), "msg/s", through, ceiling)
		l.Strategy, l.MsgsPerS, l.RawMsgsPerS = string(strategy), l.Median, *l.Ceiling
		l.Exchange = s.exchange
		l.Aim = 0.6
		l.Met = *l.Ratio >= l.Aim
		return l, nil
	}
}

// emptyBroker drops what the delayed exchange and the queues hold, so that every round begins alike.
func emptyBroker(ctx context.Context, s services) error {
	return withBroker(ctx, s.amqp, func(ch *amqp.Channel) error {
		listed, err := s.broker.Ctl(ctx, "list_queues", "--silent", "name")
		if err != nil {
			return fmt.Errorf("list queues: %w", err)
		}
		for queue := range strings.FieldsSeq(string(listed)) {
			if strings.HasPrefix(queue, namespace+".work.") || strings.HasPrefix(queue, namespace+".tier.") {
				if _, err := ch.QueuePurge(queue, false); err != nil {
					return err
				}
			}
		}
		if err := ch.ExchangeDelete(exchange, false, false); err != nil {
			return err
		}
		return declareDelay(ch, exchange)
	})
}

// With tiers the messages can spend their whole tier in the broker once the time lead is over, in which the ledger is filled and the relay starts.
func drainRound(ctx context.Context, s services, led *ledger, strategy rabbitmq.Strategy, n int, lead time.Duration) (float64, error) {
	if err := emptyBroker(ctx, s); err != nil {
		return 0, err
	}
	if err := led.reset(ctx); err != nil {
		return 0, err
	}
	due := map[rabbitmq.Strategy]time.Duration{rabbitmq.Plugin: dueIn, rabbitmq.Hold: 0, rabbitmq.Tiers: dueIn + lead}[strategy]
	if err := led.fill(ctx, n, due, time.Microsecond); err != nil {
		return 0, err
	}
	took, err := drain(ctx, s, led, strategy, n)
	if err != nil {
		return 0, err
	}
	published, err := led.count(ctx, "state = 'published' AND publishes = 1")
	if err != nil {
		return 0, err
	}
	if published != n {
		return 0, fmt.Errorf("%d of %d rows are published once in the ledger", published, n)
	}
	return float64(n) / took.Seconds(), nil
}

// drain runs a relay until n rows are settled and returns the time from the moment when it had taken the first rows.
func drain(ctx context.Context, s services, led *ledger, strategy rabbitmq.Strategy, n int) (time.Duration, error) {
	var (
		settled atomic.Int64
		done    = make(chan time.Time, 1)
		all     = sync.OnceFunc(func() { done <- time.Now() })
		first   firstPublish
	)
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{Observer: outbox.Observer{
		Settled: func(published, _ int) {
			if settled.Add(int64(published)) >= int64(n) {
				all()
			}
		},
	}})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the relay was too slow"))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- runRelay(ctx, store, s.amqp, strategy, first.wrap) }()
	select {
	case end := <-done:
		cancel()
		return end.Sub(first.at()), <-ended
	case err := <-ended:
		return 0, errors.Join(err, context.Cause(ctx), fmt.Errorf("the relay ended after %d of %d rows", settled.Load(), n))
	}
}

// firstPublish notes when its publisher was first given messages.
type firstPublish struct {
	outbox.Publisher

	once sync.Once
	time time.Time
}

func (f *firstPublish) wrap(p outbox.Publisher) outbox.Publisher {
	f.Publisher = p
	return f
}

func (f *firstPublish) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	f.once.Do(func() { f.time = time.Now() })
	return f.Publisher.Publish(ctx, batch)
}

// at is read after a settle, which follows the first publish.
func (f *firstPublish) at() time.Time { return f.time }
