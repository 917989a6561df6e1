package demo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// drive places the planned orders at the wanted rate and pays them when their buyers do.
type drive struct {
	shop   *shop
	plan   []planned
	rate   float64
	onHalf func() // called when half of the orders are placed

	placed  atomic.Int64
	mu      sync.Mutex
	numbers []string  // of the orders that were accepted
	late    []string  // payment ids of the payments that came too late
	moved   time.Time // when an order was last seen closed, or a buyer began to wait for it
}

// run returns when all orders are placed and all payments made, or with the first error.
func (d *drive) run(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	start := time.Now()
	for i, p := range d.plan {
		at := start.Add(time.Duration(float64(i) / d.rate * float64(time.Second)))
		if pause(working, time.Until(at)) != nil {
			break // an order was refused, or the demo ends
		}
		group.Go(func() error { return d.buy(working, p) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (d *drive) buy(ctx context.Context, p planned) error {
	no, total, err := d.shop.place(ctx, p)
	if err != nil {
		return err
	}
	placedAt := time.Now()
	d.mu.Lock()
	d.numbers = append(d.numbers, no)
	d.mu.Unlock()
	if d.placed.Add(1) == int64((len(d.plan)+1)/2) {
		d.onHalf()
	}
	if p.payAfter < 0 {
		return nil
	}
	if err := pause(ctx, time.Until(placedAt.Add(p.payAfter))); err != nil {
		return err
	}
	if p.late {
		closed, err := d.awaitClosed(ctx, no)
		if err != nil || !closed {
			return err
		}
	}
	if err := d.shop.pay(ctx, no, p, total); err != nil {
		return err
	}
	if p.late {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.late = append(d.late, paymentID(p))
	}
	return nil
}

// awaitClosed holds a payment at twice the limit back while the order is still pending, because the broker is down: it would
// be taken, and an order that was lost would look as if it had been paid in time. When no order closes any more it
// is not paid at all, and the check counts it as lost.
func (d *drive) awaitClosed(ctx context.Context, no string) (bool, error) {
	d.move()
	for wait := retryPause; ; wait = min(2*wait, 5*time.Second) {
		status, err := d.shop.status(ctx, no)
		if err != nil {
			return false, err
		}
		if status != "pending" {
			d.move()
			return true, nil
		}
		if d.stillFor() > patience {
			return false, nil
		}
		if err := pause(ctx, wait); err != nil {
			return false, err
		}
	}
}

func (d *drive) move() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moved = time.Now()
}

func (d *drive) stillFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.moved)
}

// preload makes everything available that the plan asks for.
func (d *drive) preload(ctx context.Context) (map[string]int64, error) {
	units := stock(d.plan)
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for sku, n := range units {
		group.Go(func() error {
			if err := d.shop.stock(working, sku, n); err != nil {
				return fmt.Errorf("preload: %w", err)
			}
			return nil
		})
	}
	return units, group.Wait()
}
