package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	mebi    = 1 << 20
	farAway = 48 * time.Hour
)

// benchMemory measures the most memory that a worker in a process of its own ever had resident, with many rows waiting for
// days: while it hands over what is within its horizon, and in a burst of messages that are due within a second, until their effects are
// committed.
func benchMemory(ctx context.Context, s services, o options) (lines []line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	near := min(o.rows, max(1, o.waiting/10))
	if err := led.fillMany(ctx, o.waiting-near, time.Microsecond); err != nil {
		return nil, err
	}
	ahead := func(ctx context.Context) error {
		if err := led.fill(ctx, near, dueIn, time.Microsecond); err != nil {
			return err
		}
		return awaitSettled(ctx, led)
	}
	burst := func(ctx context.Context) error {
		if err := led.fill(ctx, o.burst, o.lead, time.Second/time.Duration(o.burst)); err != nil {
			return err
		}
		return led.await(ctx, o.burst, "state = 'done'")
	}
	for _, v := range []struct {
		variant string
		work    func(context.Context) error
	}{
		{fmt.Sprintf("peak of a worker process, %d rows waiting, %d of them handed over", o.waiting, near), ahead},
		{fmt.Sprintf("peak of a worker process, %d rows waiting, %d effects due within a second", o.waiting, o.burst), burst},
	} {
		var peaks []float64
		for range o.rounds {
			if err := errors.Join(emptyBroker(ctx, s), led.clear(ctx)); err != nil {
				return lines, err
			}
			peak, err := workerPeak(ctx, s, v.work)
			if err != nil {
				return lines, err
			}
			peaks = append(peaks, float64(peak)/mebi)
		}
		l := alone("memory", v.variant, unitMemory, peaks)
		l.Waiting, l.Exchange = o.waiting, s.exchange
		l.Aim = 100
		l.Met = l.Max < l.Aim
		lines = append(lines, l)
	}
	return lines, nil
}

// workerPeak runs a worker process until work is done, and returns its peak resident memory in bytes.
func workerPeak(ctx context.Context, s services, work func(context.Context) error) (peak int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the worker was too slow"))
	defer cancel()
	c, err := startChild(ctx, s, roleWorker)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := work(ctx); err != nil {
		return 0, err
	}
	return peakMemory(c.cmd.Process.Pid)
}

func awaitSettled(ctx context.Context, led *ledger) error {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := led.count(ctx, "state = 'scheduled' AND available_at < UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", horizon.Microseconds())
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d rows are not settled: %w", left, context.Cause(ctx))
		}
	}
}

// clear deletes what has been published and what is done.
func (l *ledger) clear(ctx context.Context) error {
	_, err := l.sql.ExecContext(ctx, "DELETE FROM outbox_messages WHERE state IN ('published', 'done')")
	return err
}
