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
	return s.every(ctx, time.Second, s.round)
}

func (s *scan) round(ctx context.Context) (more bool, err error) {
	due, err := texts(ctx, s.db, `SELECT no FROM orders WHERE status = 'pending' AND due_at <= UTC_TIMESTAMP(6)`)
	if err != nil {
		return false, err
	}
	for _, no := range due {
		if err := s.closeOne(ctx, no); err != nil {
			return false, err
		}
	}
	return false, nil
}
