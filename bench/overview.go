package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duebox/duebox/outbox"
)

// overviewAim is how long reading what the operator's first page shows may take, in milliseconds: it is read every two seconds.
const overviewAim = 100.0

// benchOverview measures how long it takes to read what the operator's first page shows, while many rows wait for days and as many as -rows
// are due from half an hour ago to half an hour ahead: nobody has handed them over, which is when somebody looks at the page. As many are done.
func benchOverview(ctx context.Context, s services, o options) (l line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	const around = time.Hour
	if err := led.fillMany(ctx, o.waiting, flatStep); err != nil {
		return line{}, err
	}
	if err := led.fill(ctx, o.rows, -around/2, around/time.Duration(o.rows)); err != nil {
		return line{}, err
	}
	for from := 0; from < o.rows; from += copied {
		n := min(o.rows-from, copied, o.waiting)
		if err := led.copyRows(ctx, rowsAfter{0, n}, 0, n, flatStep, doneCopy); err != nil {
			return line{}, err
		}
	}
	if err := led.exec(ctx, "ANALYZE TABLE outbox_messages"); err != nil {
		return line{}, err
	}
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{})
	if err != nil {
		return line{}, err
	}
	operator := store.Operator(outbox.OperatorConfig{})
	rounds := make([][]float64, o.rounds)
	for i := -1; i < o.rounds; i++ { // the first is not counted: it brings the pages into memory
		for range max(turns, o.calls/5) {
			began := time.Now()
			v, err := operator.Overview(ctx)
			if err != nil {
				return line{}, err
			}
			if v.Verdict.Late.N == 0 || v.Counts[string(outbox.Done)].N == 0 {
				return line{}, fmt.Errorf("the overview says %q of rows that are late and done", v.Verdict.Text)
			}
			if i >= 0 {
				rounds[i] = append(rounds[i], float64(time.Since(began))/float64(time.Millisecond))
			}
		}
	}
	l = alone("overview", fmt.Sprintf("p99 of the operator's first page with %d rows waiting", o.waiting), "ms", percentiles(rounds, 99))
	l.Rows, l.P99Ms, l.P50Ms = o.waiting, l.Median, round(median(percentiles(rounds, 50)))
	l.Aim = overviewAim
	l.Met = l.P99Ms <= overviewAim
	return l, nil
}
