package outbox

import (
	"context"
	"fmt"
)

// Requeue gives a dead message another life: it is scheduled for its due time, which means at once if that is over, with
// attempts and repairs at 0 and no last error. It returns ErrNoMessage if no dead message has this id.
func (s *Store) Requeue(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: primary
	n, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET
			state = 'scheduled', attempts = 0, begins = 0, repairs = 0, last_error = NULL, held = FALSE, revision = revision + 1,
			available_at = GREATEST(due_at, UTC_TIMESTAMP(6))
		WHERE id = ? AND state = 'dead'`, id)
	if err != nil {
		return fmt.Errorf("requeue message %d: %w", id, err)
	}
	if n == 0 {
		return ErrNoMessage
	}
	return nil
}
