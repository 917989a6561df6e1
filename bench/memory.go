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
// days and some to be handed over at once.
func benchMemory(ctx context.Context, s services, o options) (l line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	near := min(o.rows, max(1, o.waiting/10))
	if err := led.fill(ctx, o.waiting-near, farAway, time.Microsecond); err != nil {
		return line{}, err
	}
	var peaks []float64
	for range o.rounds {
		if err := emptyBroker(ctx, s); err != nil {
			return line{}, err
		}
		if err := led.fill(ctx, near, dueIn, time.Microsecond); err != nil {
			return line{}, err
		}
		peak, err := workerPeak(ctx, s, led)
		if err != nil {
			return line{}, err
		}
		peaks = append(peaks, float64(peak)/mebi)
	}
	l = alone("memory", fmt.Sprintf("peak of a worker process, %d rows waiting, %d of them handed over", o.waiting, near), "MiB", peaks)
	l.Exchange = s.exchange
	l.Aim = 100
	l.Met = l.Max < l.Aim
	return l, nil
}

// workerPeak runs a worker process until it has settled everything within its horizon, and returns its peak resident memory
// in bytes.
func workerPeak(ctx context.Context, s services, led *ledger) (peak int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the worker was too slow"))
	defer cancel()
	c, err := startChild(ctx, s, roleWorker)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := awaitSettled(ctx, led); err != nil {
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
