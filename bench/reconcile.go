package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// benchReconcile measures a pass over many published rows of which one in a hundred is lost, in a process of its own.
func benchReconcile(ctx context.Context, s services, o options) (l line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	if err := led.fill(ctx, o.published, farAway, time.Microsecond); err != nil {
		return line{}, err
	}
	if _, err := led.sql.ExecContext(ctx, `UPDATE outbox_messages SET state = 'published'`); err != nil {
		return line{}, err
	}
	lost := o.published / 100
	var seconds, peaks []float64
	for range o.rounds {
		if _, err := led.sql.ExecContext(ctx, `UPDATE outbox_messages SET
				state = 'published', available_at = UTC_TIMESTAMP(6), due_at = UTC_TIMESTAMP(6), repairs = 0 WHERE id % 100 = 0`); err != nil {
			return line{}, fmt.Errorf("lose messages: %w", err)
		}
		c, err := startChild(ctx, s, roleReconcile)
		if err != nil {
			return line{}, err
		}
		if err := c.end(); err != nil {
			return line{}, err
		}
		var got passed
		if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
			return line{}, fmt.Errorf("read the report of the pass: %w", err)
		}
		if got.Report.Found() != lost {
			return line{}, fmt.Errorf("the pass has found %d of %d lost messages", got.Report.Found(), lost)
		}
		seconds = append(seconds, got.Report.Seconds)
		peaks = append(peaks, float64(got.Peak)/mebi)
	}
	l = alone("reconcile", fmt.Sprintf("a pass over %d published rows, %d of them lost", o.published, lost), "s", seconds)
	_, peak := extremes(peaks)
	l.Rows, l.Seconds, l.PeakRSSMB = o.published, l.Median, round(peak)
	l.Aim = 30
	l.Met = l.Max < l.Aim && peak < 100
	return l, nil
}
