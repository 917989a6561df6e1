package main

import (
	"context"
	"sync"
	"time"
)

// wheel is a hashed time wheel in the API's own process. What was in it when the process ended is read from the table when it begins.
type wheel struct {
	plainly
	env

	begun time.Time

	mu    sync.Mutex
	slots [wheelSlots][]spoke
	tick  int // up to which the wheel has turned
}

// spoke is an order in a slot, and the tick at which it is over.
type spoke struct {
	no   string
	tick int
}

const (
	wheelTick  = 100 * time.Millisecond
	wheelSlots = 600
)

func newWheel(e env) *wheel { return &wheel{env: e, begun: time.Now()} }

func (w *wheel) Placed(_ context.Context, o order) error {
	w.add(o.No, o.Timeout)
	return nil
}

func (w *wheel) add(no string, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := spoke{no, max(w.tick+1, int((time.Since(w.begun)+in)/wheelTick)+1)} // not before its time, and not in a slot that has been
	w.slots[s.tick%wheelSlots] = append(w.slots[s.tick%wheelSlots], s)
}

func (w *wheel) Work(ctx context.Context) error {
	if err := w.load(ctx); err != nil {
		return err
	}
	over := make(chan string, 100_000)
	go func() {
		defer close(over)
		ticks := time.NewTicker(wheelTick)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			for _, no := range w.turn() {
				over <- no
			}
		}
	}()
	return each(ctx, 8, over, func(no string) {
		if err := w.closeOne(ctx, no); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "over", "error", err)
			w.add(no, time.Second)
		}
	})
}

// turn goes on to the present and returns what is over.
func (w *wheel) turn() (over []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for time.Duration(w.tick+1)*wheelTick <= time.Since(w.begun) {
		w.tick++
		slot := &w.slots[w.tick%wheelSlots]
		var stay []spoke
		for _, s := range *slot {
			if s.tick <= w.tick {
				over = append(over, s.no)
			} else {
				stay = append(stay, s)
			}
		}
		*slot = stay
	}
	return over
}

func (w *wheel) load(ctx context.Context) error {
	rows, err := w.db.QueryContext(ctx, `SELECT no, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) FROM orders WHERE status = 'pending'`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var no string
		var micros int64
		if err := rows.Scan(&no, &micros); err != nil {
			return err
		}
		w.add(no, time.Duration(micros)*time.Microsecond)
	}
	return rows.Err()
}
