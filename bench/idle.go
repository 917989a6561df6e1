package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

const (
	idleQueries = 10.0                   // a second
	idleCPU     = 1.0                    // percent of a core
	idlePublish = 120 * time.Millisecond // median
	settleIn    = 5 * time.Second        // after which a worker that has started has nothing more to do
	ticksPerS   = 100                    // of utime and stime in proc(5): USER_HZ, which is the same on every Linux
)

// benchIdle measures what a worker in a process of its own costs while nothing is due, with each strategy: queries of the database a
// second and processor time, in rounds of a minute by default so that a pass of the reconciler is in each; and then how soon a message that is
// due now, committed by this process, has reached another consumer of the broker.
func benchIdle(ctx context.Context, s services, o options) (lines []line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	if err := led.fill(ctx, o.few, farAway, time.Millisecond); err != nil {
		return nil, err
	}
	for _, strategy := range []rabbitmq.Strategy{rabbitmq.Plugin, rabbitmq.Hold, rabbitmq.Tiers} {
		l, err := idleWorker(ctx, s, led, strategy, o)
		if err != nil {
			return lines, fmt.Errorf("%s: %w", strategy, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func idleWorker(ctx context.Context, s services, led *ledger, strategy rabbitmq.Strategy, o options) (l line, err error) {
	c, err := startChild(ctx, s, roleWorker, strategyVariable+"="+string(strategy))
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	late, err := publishing(ctx, s, led, o.idle)
	if err != nil {
		return line{}, err
	}
	if err := rest(ctx, settleIn); err != nil {
		return line{}, err
	}
	var queries, cpu []float64
	for range o.rounds {
		asked, busy, err := watch(ctx, led, c.cmd.Process.Pid, o.quiet)
		if err != nil {
			return line{}, err
		}
		queries, cpu = append(queries, asked), append(cpu, busy)
	}
	l = alone("idle", fmt.Sprintf("%s: a worker with nothing due, %d rows waiting", strategy, o.few), unitQueries, queries)
	l.Strategy, l.Waiting = string(strategy), o.few
	l.QueriesPerS, l.CPUPercent = l.Median, round(median(cpu))
	l.PublishP50Ms, l.PublishP99Ms = round(percentile(late, 50)), round(percentile(late, 99))
	l.Exchange = s.exchange
	l.Aim = idleQueries
	l.Met = l.QueriesPerS < idleQueries && l.CPUPercent < idleCPU && l.PublishP50Ms <= float64(idlePublish.Milliseconds())
	return l, nil
}

// watch returns how many queries a second the server was asked by others than us, and how much of a core the process used, in percent.
func watch(ctx context.Context, led *ledger, pid int, d time.Duration) (queries, cpu float64, err error) {
	look := func() (asked int64, busy time.Duration, err error) {
		var name string
		err = led.sql.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &asked)
		if err == nil {
			busy, err = processorTime(pid)
		}
		return asked, busy, err
	}
	asked, busy, err := look()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := rest(ctx, d); err != nil {
		return 0, 0, err
	}
	askedNow, busyNow, err := look()
	took := time.Since(began)
	return float64(askedNow-asked-1) / took.Seconds(), 100 * float64(busyNow-busy) / float64(took), err
}

// processorTime is what a process has used, in user and in system mode, see proc(5).
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field, the name in parentheses, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const user, system = 11, 12 // counted from the third field of the line
	if len(fields) <= system {
		return 0, fmt.Errorf("process %d has no times", pid)
	}
	ticks := int64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the times of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerS, nil
}

// publishing commits n messages that are due now, one after the other with pauses that share no rhythm with the worker's, and returns how
// many milliseconds each took from the commit until a queue beside the worker's own had it.
func publishing(ctx context.Context, s services, led *ledger, n int) (late []float64, err error) {
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{})
	if err != nil {
		return nil, err
	}
	first, err := led.last(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute+time.Duration(n)*time.Second, errors.New("the worker was too slow"))
	defer cancel()
	enqueue := func(i int) (int64, error) {
		m := outbox.Message{Topic: topic, Key: keyOf(first + i), Payload: payload()}
		err := led.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return store.Enqueue(ctx, tx, &m) })
		return m.ID, err
	}
	id, err := enqueue(0) // its effect says that the worker is ready
	if err != nil {
		return nil, err
	}
	if err := led.await(ctx, 1, "id = ? AND state = 'done'", id); err != nil {
		return nil, err
	}
	err = withBroker(ctx, s.amqp, func(ch *amqp.Channel) error {
		arrived, err := listen(ctx, ch)
		if err != nil {
			return err
		}
		for i := range n {
			if err := rest(ctx, time.Duration(50+rand.IntN(200))*time.Millisecond); err != nil { //nolint:gosec // a pause
				return err
			}
			id, err := enqueue(1 + i)
			if err != nil {
				return err
			}
			took, err := arrival(ctx, arrived, id, time.Now())
			if err != nil {
				return fmt.Errorf("message %d of %d: %w", i+1, n, err)
			}
			late = append(late, float64(took.Microseconds())/1000)
		}
		return nil
	})
	return late, err
}

// listen has what is delivered copied to a queue of ours. The worker has declared the exchange.
func listen(ctx context.Context, ch *amqp.Channel) (<-chan amqp.Delivery, error) {
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, err
	}
	if err := ch.QueueBind(q.Name, topic, namespace+".deliver", false, nil); err != nil {
		return nil, err
	}
	return ch.ConsumeWithContext(ctx, q.Name, "", true, true, false, false, nil)
}

func arrival(ctx context.Context, arrived <-chan amqp.Delivery, id int64, since time.Time) (time.Duration, error) {
	for {
		select {
		case d, ok := <-arrived:
			if !ok {
				return 0, errors.New("the connection to the broker has ended")
			}
			if d.Headers["duebox-id"] == id {
				return time.Since(since), nil
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
