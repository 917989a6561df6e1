package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// every calls round at once and then at each interval, and again without waiting as long as it says that there is more, until ctx ends.
func (e env) every(ctx context.Context, interval time.Duration, round func(ctx context.Context) (more bool, err error)) error {
	timer := time.NewTicker(interval)
	defer timer.Stop()
	for {
		more, err := round(ctx)
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "round", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// each calls do for what comes, so many at a time, until nothing more comes or ctx ends.
func each[T any](ctx context.Context, workers int, come <-chan T, do func(T)) error {
	var g errgroup.Group
	for range workers {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case one, more := <-come:
					if !more {
						return nil
					}
					do(one)
				}
			}
		})
	}
	return g.Wait()
}
