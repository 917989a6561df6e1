package main

import (
	"context"
	"database/sql"
	"time"
)

// pagedScan is the careful one: an index on what is asked for, pages of 500, each under a row lock that another instance passes over, and as many
// orders closed in one transaction as there are on a page.
type pagedScan struct {
	plainly
	env
}

const scanPage = 500

func (s *pagedScan) Setup(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `ALTER TABLE orders ADD KEY by_due (status, due_at)`)
	return err
}

func (s *pagedScan) Work(ctx context.Context) error {
	return s.every(ctx, time.Second, s.page)
}

func (s *pagedScan) page(ctx context.Context) (more bool, err error) {
	err = s.in(ctx, func(tx *sql.Tx) error {
		due, err := texts(ctx, tx, `SELECT no FROM orders FORCE INDEX (by_due) WHERE status = 'pending' AND due_at <= UTC_TIMESTAMP(6)
			ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED`, scanPage)
		if err != nil {
			return err
		}
		for _, no := range due {
			if err := s.close(ctx, tx, no); err != nil {
				return err
			}
		}
		more = len(due) == scanPage
		return nil
	})
	return more, err
}
