package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// relaying is one way of handing over a ledger.
type relaying struct {
	name      string
	strategy  rabbitmq.Strategy
	queueType rabbitmq.QueueType
	processes int
	aim       float64
}

// into names what the messages are published to, for people.
func (r relaying) into() string {
	if r.strategy == rabbitmq.Plugin {
		return "the delayed exchange"
	}
	if r.strategy == rabbitmq.Tiers {
		return "tiers, as many as come in time"
	}
	return "a durable " + string(r.queueType) + " queue"
}

// workers says how many processes relay, for people.
func (r relaying) workers() string {
	if r.processes == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", r.processes)
}

// benchRelay compares relays that drain a freshly filled ledger, until the last row is settled in the database, with a publisher that
// uses amqp091 alone and no database and sends messages of the same size and headers: with strategy plugin into the same delayed exchange, else
// into the same work queue; with tiers that is a queue of the same type.
func benchRelay(r relaying) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, err := openLedger(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()

		drained := func(n int) (float64, error) { return r.drainRound(ctx, s, led, n, o.lead) }
		into := namespace + ".deliver"
		if r.strategy == rabbitmq.Plugin {
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
		if _, err := drained(max(1, o.rows/10)); err != nil {
			return line{}, err
		}
		through, ceiling, err := interleave(o.rounds, func() (float64, error) { return drained(o.rows) }, raw)
		if err != nil {
			return line{}, err
		}
		l = compared(r.name, fmt.Sprintf("%d rows from the ledger to %s, settled, %s, beside amqp091 alone", o.rows, r.into(), r.workers()),
			"msg/s", through, ceiling)
		l.Strategy, l.Processes, l.MsgsPerS, l.RawMsgsPerS = string(r.strategy), r.processes, l.Median, *l.Ceiling
		l.Exchange = s.exchange
		l.Aim = r.aim
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

// offered is how many messages a second come to the time for their tier. More than any relay hands over: what comes too late for its tier
// is held and not counted.
const offered = 40_000

// drainRound fills the ledger with n rows, has them handed over and returns how many a second were.
func (r relaying) drainRound(ctx context.Context, s services, led *ledger, n int, lead time.Duration) (float64, error) {
	if err := emptyBroker(ctx, s); err != nil {
		return 0, err
	}
	if err := led.reset(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the relay was too slow"))
	defer cancel()
	if r.processes > 1 {
		return r.drainTogether(ctx, s, led, n)
	}
	due, step := dueIn, time.Microsecond
	if r.strategy == rabbitmq.Hold {
		due = 0
	}
	if r.strategy == rabbitmq.Tiers {
		// The first message comes to the time for its tier when the ledger is filled and the relay has started.
		due, step = dueIn+lead, time.Second/offered
	}
	if err := led.fill(ctx, n, due, step); err != nil {
		return 0, err
	}
	handed, took, err := r.drain(ctx, s, led, n, lead+time.Duration(n)*step)
	if err != nil {
		return 0, err
	}
	published, err := led.count(ctx, "state = 'published' AND publishes = 1")
	if err != nil {
		return 0, err
	}
	if published != handed || r.strategy != rabbitmq.Tiers && handed != n {
		return 0, fmt.Errorf("%d of %d rows are published once in the ledger, %d were handed over", published, n, handed)
	}
	return float64(handed) / took.Seconds(), nil
}

// drain runs a relay until n rows are settled, or with tiers until no more of them can be, and returns how many were and the time that it
// took from the moment when it had taken the first rows.
func (r relaying) drain(ctx context.Context, s services, led *ledger, n int, end time.Duration) (handed int, took time.Duration, err error) {
	var (
		mu    sync.Mutex
		last  time.Time
		done  = make(chan struct{})
		all   = sync.OnceFunc(func() { close(done) })
		first firstPublish
	)
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{Observer: outbox.Observer{
		Settled: func(published, _ int) {
			mu.Lock()
			defer mu.Unlock()
			if handed, last = handed+published, time.Now(); handed >= n {
				all()
			}
		},
	}})
	if err != nil {
		return 0, 0, err
	}
	if r.strategy == rabbitmq.Tiers {
		const tail = 2 * time.Second // what was handed over by then is settled
		defer time.AfterFunc(end+tail, all).Stop()
	}
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runRelay(relaying, store, s.amqp, r.strategy, r.queueType, "bench", first.wrap) }()
	select {
	case <-done:
		stop()
		err = <-ended
		return handed, last.Sub(first.at()), err
	case err := <-ended:
		return 0, 0, errors.Join(err, context.Cause(ctx), fmt.Errorf("the relay ended after %d of %d rows", handed, n))
	}
}

// drainTogether has relays in processes of their own drain the ledger. They have their shards when all rows appear at once; the rows that
// are settled first are not counted, so that the time until somebody looks is not either.
func (r relaying) drainTogether(ctx context.Context, s services, led *ledger, n int) (perSecond float64, err error) {
	if err := led.fill(ctx, n, dueIn, time.Microsecond); err != nil {
		return 0, err
	}
	if err := led.exec(ctx, "UPDATE outbox_messages SET state = 'canceled'"); err != nil {
		return 0, err
	}
	for range r.processes {
		c, err := startChild(ctx, s, roleRelay)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, c.end()) }()
	}
	if err := led.until(ctx, fmt.Sprintf(`SELECT COUNT(*) = 16 AND COUNT(DISTINCT owner) = %d FROM outbox_shards
		WHERE expires_at > UTC_TIMESTAMP(6)`, r.processes)); err != nil {
		return 0, fmt.Errorf("share the shards: %w", err)
	}
	if err := led.exec(ctx, "UPDATE outbox_messages SET state = 'scheduled'"); err != nil {
		return 0, err
	}
	if err := led.await(ctx, n, "state = 'published'"); err != nil {
		return 0, fmt.Errorf("hand over all rows: %w", err)
	}
	var counted int
	var took float64
	err = led.sql.QueryRowContext(ctx, `SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, first, MAX(published_at)) / 1000000
		FROM outbox_messages, (SELECT MIN(published_at) AS first FROM outbox_messages) AS f
		WHERE published_at > first AND publishes = 1 GROUP BY first`).Scan(&counted, &took)
	if err != nil {
		return 0, err
	}
	return float64(counted) / took, nil
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
