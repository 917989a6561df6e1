package main

import (
	"context"

	"golang.org/x/sync/errgroup"
)

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
