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

	mu    sync.Mutex
	slots [wheelSlots][]spoke
	at    int
}

// spoke is an order in a slot, and how many turns it still waits.
type spoke struct {
	no    string
	turns int
}

const (
	wheelTick  = 100 * time.Millisecond
	wheelSlots = 600
)

func newWheel(e env) *wheel { return &wheel{env: e} }

func (w *wheel) Placed(_ context.Context, o order) error {
	w.add(o.No, o.Timeout)
	return nil
}

func (w *wheel) add(no string, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ticks := max(1, int((in+wheelTick-1)/wheelTick)+1)
	slot := (w.at + ticks) % wheelSlots
	w.slots[slot] = append(w.slots[slot], spoke{no, (ticks - 1) / wheelSlots})
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
		begun, done := time.Now(), 0
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			for ; time.Duration(done+1)*wheelTick <= time.Since(begun); done++ {
				for _, no := range w.turn() {
					over <- no
				}
			}
		}
	}()
	return each(ctx, 8, over, func(no string) {
		if err := w.closeOne(ctx, no); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "over", "error", err)
		}
	})
}

// turn goes on by one slot and returns what is over in it.
func (w *wheel) turn() (over []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = (w.at + 1) % wheelSlots
	var stay []spoke
	for _, s := range w.slots[w.at] {
		if s.turns--; s.turns < 0 {
			over = append(over, s.no)
		} else {
			stay = append(stay, s)
		}
	}
	w.slots[w.at] = stay
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
