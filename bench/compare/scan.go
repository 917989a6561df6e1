package main

import (
	"context"
	"time"
)

// scan looks through all orders on a timer, and closes those that are over. It keeps no list of its own, and no index beyond the primary key.
type scan struct {
	plainly
	env
}

func (s *scan) Work(ctx context.Context) error {
	timer := time.NewTicker(time.Second)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := s.round(ctx); err != nil {
			s.log.WarnContext(ctx, "scan", "error", err)
		}
	}
}

func (s *scan) round(ctx context.Context) error {
	due, err := texts(ctx, s.db, `SELECT no FROM orders WHERE status = 'pending' AND due_at <= UTC_TIMESTAMP(6)`)
	if err != nil {
		return err
	}
	for _, no := range due {
		if err := s.closeOne(ctx, no); err != nil {
			return err
		}
	}
	return nil
}
