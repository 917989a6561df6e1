package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

const (
	idleStep = 25 * time.Millisecond // between two messages of the idle part: there is never more than one to do
	// Until the first message is due: all rows are written by then, and have some time to spend in a tier.
	idleAhead = 5 * time.Second
)

// latenessTiers are what the messages of both parts spend in the broker with strategy tiers.
func latenessTiers() []time.Duration { return []time.Duration{2 * time.Second, 10 * time.Second} }

// Of one message at a time: how much later it may be than one that the delayed exchange alone brings to a consumer that does nothing.
const besideBare = 10 // ms

// benchLateness measures how late messages are with a strategy: one at a time until their effect is committed, and many that are due
// within a second until they arrive at a consumer. Both beside the delayed exchange alone, in the same run.
func benchLateness(strategy rabbitmq.Strategy, idleAim, burstAim time.Duration) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, err := openLedger(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()
		ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("the messages took too long"))
		defer cancel()
		idle, err := idleLateness(ctx, s, led, strategy, o.idle)
		if err != nil {
			return line{}, err
		}
		bareIdle, err := bareLateness(ctx, s, o.idle, idleAhead, idleStep)
		if err != nil {
			return line{}, err
		}
		early, err := led.count(ctx, "finished_at < due_at")
		if err != nil {
			return line{}, err
		}
		burst, err := burstLateness(ctx, s, led, strategy, o)
		if err != nil {
			return line{}, err
		}
		bareBurst, err := bareLateness(ctx, s, o.burst, o.lead, time.Second/time.Duration(o.burst))
		if err != nil {
			return line{}, err
		}
		for _, late := range append(idle, burst...) {
			if late < 0 {
				early++
			}
		}
		l = alone("lateness", fmt.Sprintf("%s: %d messages one after the other, until their effect is committed", strategy, o.idle), "ms", idle)
		l.Rounds, l.Median = 1, round(percentile(idle, 99))
		l.Strategy, l.Early = string(strategy), &early
		l.IdleP50Ms, l.IdleP99Ms = round(percentile(idle, 50)), l.Median
		l.Burst, l.BurstP99Ms = o.burst, round(percentile(burst, 99))
		l.BareIdleP99Ms, l.BareBurstP99Ms = round(percentile(bareIdle, 99)), round(percentile(bareBurst, 99))
		l.Exchange = s.exchange
		l.Aim = round(min(float64(idleAim.Milliseconds()), l.BareIdleP99Ms+besideBare))
		l.Met = l.IdleP99Ms <= l.Aim && l.BurstP99Ms <= float64(burstAim.Milliseconds()) && early == 0
		return l, nil
	}
}

// times collects how late messages were, in milliseconds, one figure for each.
type times struct {
	mu   sync.Mutex
	want int
	late []float64
	all  chan struct{} // closed when there are as many as are wanted
}

func newTimes(want int) *times { return &times{want: want, all: make(chan struct{})} }

func (t *times) add(late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = append(t.late, float64(late.Microseconds())/1000)
	if len(t.late) == t.want {
		close(t.all)
	}
}

// idleLateness is database time just after the effect's commit minus due time.
func idleLateness(ctx context.Context, s services, led *ledger, strategy rabbitmq.Strategy, n int) ([]float64, error) {
	got := newTimes(n)
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{Observer: outbox.Observer{
		Delivered: func(_ string, outcome outbox.Outcome, late time.Duration) {
			if outcome == outbox.OutcomeDone {
				got.add(late)
			}
		},
	}})
	if err != nil {
		return nil, err
	}
	w := way{strategy: strategy, store: store, handle: func(ctx context.Context, d outbox.Delivery) error {
		_, err := store.SQL().Handle(ctx, d, func(*sql.Tx) error { return nil }) // the guard's own write is measured
		return err
	}}
	err = w.during(ctx, s, func() error {
		if err := led.fill(ctx, n, idleAhead, idleStep); err != nil {
			return err
		}
		return got.await(ctx)
	})
	return got.late, err
}

// burstLateness is the time of arrival minus due time, by the clock of this machine, which is the database's as well.
func burstLateness(ctx context.Context, s services, led *ledger, strategy rabbitmq.Strategy, o options) ([]float64, error) {
	n := o.burst
	if err := led.reset(ctx); err != nil {
		return nil, err
	}
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{})
	if err != nil {
		return nil, err
	}
	var (
		got  = newTimes(n)
		seen sync.Map
	)
	w := way{strategy: strategy, store: store, handle: func(_ context.Context, d outbox.Delivery) error {
		late := time.Since(d.DueAt)
		if _, again := seen.LoadOrStore(d.ID, true); !again {
			got.add(late)
		}
		return nil
	}}
	err = w.during(ctx, s, func() error {
		if err := led.fill(ctx, n, o.lead, time.Second/time.Duration(n)); err != nil {
			return err
		}
		return got.await(ctx)
	})
	return got.late, err
}

func (t *times) await(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return fmt.Errorf("%d of %d messages came: %w", len(t.late), t.want, context.Cause(ctx))
	}
}

// way is all that a message passes on its way from the ledger to its handler.
type way struct {
	strategy rabbitmq.Strategy
	store    *outbox.Store
	handle   func(ctx context.Context, d outbox.Delivery) error
}

// during lets messages flow while measure runs.
func (w way) during(ctx context.Context, s services, measure func() error) error {
	broker, err := rabbitmq.NewBroker(s.amqp, rabbitmq.Config{Namespace: namespace})
	if err != nil {
		return err
	}
	publisher, err := rabbitmq.NewPublisher(broker, w.store, rabbitmq.PublisherConfig{Strategy: w.strategy, Tiers: latenessTiers(), Topics: []string{topic}})
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(w.store, publisher, outbox.RelayConfig{Owner: "bench", Reach: publisher.Reach})
	if err != nil {
		return err
	}
	keep := func(context.Context, outbox.Stray) error { return errors.New("a delivery cannot be read") }
	consumer, err := rabbitmq.NewConsumer(broker, []string{topic}, rabbitmq.Handlers{Handle: w.handle, Keep: keep}, rabbitmq.ConsumerConfig{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		parts = []func(context.Context) error{publisher.Run, relay.Run, consumer.Run}
		ended = make(chan error, len(parts))
	)
	for _, run := range parts {
		go func() { ended <- run(ctx) }()
	}
	err = awaitReady(ctx, publisher, consumer)
	if err == nil {
		err = measure()
	}
	stop()
	for range parts {
		err = errors.Join(err, <-ended)
	}
	return err
}

func awaitReady(ctx context.Context, p *rabbitmq.Publisher, c *rabbitmq.Consumer) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		if have, want := c.Consuming(); have == want && p.State().Connected {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("connect: %w", context.Cause(ctx))
		}
	}
}
