package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// The messages are due one after the other, so that effects keep up: what is late then was lost. The lateness that is printed tells
	// whether they did.
	perSecond = 400
	// A message is late if it takes effect later than this after its due time. One that the broker lost, and that was not published
	// again in time, would be later than the grace of 30 s; a machine that has other work stalls for less.
	lateAfter = 5 * time.Second
)

// benchRecovery measures how soon everything that a broker held is with it again after it died with its disk, and how many
// messages were late although their due times came after that.
func benchRecovery(ctx context.Context, s services, o options) (l line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	last := o.ahead + time.Duration(o.held/perSecond+1)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, last+5*time.Minute, errors.New("the recovery was too slow"))
	defer cancel()
	if err := led.fill(ctx, o.held, o.ahead, time.Second/perSecond); err != nil {
		return line{}, err
	}
	c, err := startChild(ctx, s, roleWorker)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := led.await(ctx, o.held, "state = 'published'"); err != nil {
		return line{}, err
	}
	var life int64 // of the broker that dies
	if err := led.sql.QueryRowContext(ctx, "SELECT broker_epoch FROM outbox_meta WHERE id = 1").Scan(&life); err != nil {
		return line{}, fmt.Errorf("read the broker epoch: %w", err)
	}
	fmt.Fprintf(o.log, "bench: recovery: %d messages in flight, the broker dies\n", o.held)
	if err := errors.Join(s.broker.Wipe(), s.broker.Start(ctx)); err != nil {
		return line{}, err
	}
	back := time.Now()
	if err := led.await(ctx, o.held, "state = 'published' AND broker_epoch > ?", life); err != nil {
		return line{}, err
	}
	rearmed := time.Since(back).Seconds()
	early, err := led.count(ctx, "due_at < UTC_TIMESTAMP(6)")
	if err != nil {
		return line{}, err
	}
	if early > 0 {
		return line{}, fmt.Errorf("%d messages came due before all were published again: give -ahead more time", early)
	}
	fmt.Fprintf(o.log, "bench: recovery: published again after %.1f s, waiting for %d effects\n", rearmed, o.held)
	if err := led.await(ctx, o.held, "state = 'done'"); err != nil {
		return line{}, err
	}
	late, err := led.count(ctx, "TIMESTAMPDIFF(MICROSECOND, due_at, finished_at) > ?", lateAfter.Microseconds())
	if err != nil {
		return line{}, err
	}
	lateness, err := led.lateness(ctx)
	if err != nil {
		return line{}, err
	}
	l = alone("recovery", fmt.Sprintf("from the return of an empty broker until %d messages are published again", o.held), "s", []float64{rearmed})
	l.InFlight, l.RearmS, l.LateAfterRecovery, l.LatenessMs = o.held, l.Median, &late, &lateness
	l.Exchange = s.exchange
	l.Aim = 30
	l.Met = rearmed < l.Aim && late == 0
	return l, nil
}

// await waits until n rows are as where says.
func (l *ledger) await(ctx context.Context, n int, where string, args ...any) error {
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for {
		got, err := l.count(ctx, where, args...)
		if err != nil || got == n {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d rows are not: %s: %w", n-got, n, where, context.Cause(ctx))
		}
	}
}

// lateness is that of the guard: the time at which it let the effect run, minus the due time.
func (l *ledger) lateness(ctx context.Context) (spread, error) {
	rows, err := l.sql.QueryContext(ctx, `SELECT TIMESTAMPDIFF(MICROSECOND, due_at, finished_at) / 1000 FROM outbox_messages`)
	if err != nil {
		return spread{}, err
	}
	defer func() { _ = rows.Close() }()
	var all []float64
	for rows.Next() {
		var ms float64
		if err := rows.Scan(&ms); err != nil {
			return spread{}, err
		}
		all = append(all, ms)
	}
	if err := rows.Err(); err != nil {
		return spread{}, err
	}
	_, most := extremes(all)
	return spread{P50: round(percentile(all, 50)), P99: round(percentile(all, 99)), Max: round(most)}, nil
}
