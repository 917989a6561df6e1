package outbox

import (
	"context"
	"fmt"
)

// Epoch returns which life of the broker the ledger knows of; 0 before the first.
func (s *Store) Epoch(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var epoch int64
	if err := s.sql.QueryRowContext(ctx, `SELECT broker_epoch FROM outbox_meta WHERE id = 1`).Scan(&epoch); err != nil {
		return 0, fmt.Errorf("read the broker epoch: %w", err)
	}
	return epoch, nil
}

// Raise notes that the broker has begun a new life since the epoch from, and returns the epoch that is in force then. With
// empty it has lost all that it held, and not only what it kept in memory. When another process has raised the epoch already,
// that one is returned. It is safe for concurrent use; after an error the epoch may have been raised.
//
// Messages published in an earlier epoch are scheduled again by Reconciler.Rearm.
func (s *Store) Raise(ctx context.Context, from int64, empty bool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// empty_epoch is set first: MySQL assigns from left to right.
	n, err := execCount(ctx, s.sql, `UPDATE outbox_meta SET
			empty_epoch = IF(?, broker_epoch + 1, empty_epoch), broker_epoch = broker_epoch + 1, raised_at = UTC_TIMESTAMP(6)
		WHERE id = 1 AND broker_epoch = ?`, empty, from)
	if err != nil {
		return 0, fmt.Errorf("raise the broker epoch: %w", err)
	}
	if n == 1 {
		return from + 1, nil
	}
	return s.Epoch(ctx)
}
