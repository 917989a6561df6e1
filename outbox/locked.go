package outbox

import (
	"context"
	"errors"
	"time"
)

const (
	// How long a delivery waits for somebody who has its message's row locked: for an effect of another copy, or a caller's open
	// transaction, that is a long time.
	lockWait = 5 * time.Second
	// How long after such a wait other deliveries ask before they wait: who has locked one row for so long may have locked
	// hundreds, and waiting for each would stop the topic.
	crowdedFor = 10 * time.Second
)

// hasWaited reports whether err may say that a row was locked for too long.
func hasWaited(err error) bool {
	return mysqlNumber(err) == erLockWaitTimeout || errors.Is(err, context.DeadlineExceeded)
}

// isCrowded tells whether a delivery has lately met a row that stayed locked.
func (s *Store) isCrowded() bool { return time.Now().UnixNano() < s.crowded.Load() }

// busy is the outcome of a delivery whose row is locked. Whatever becomes of who has it, a live message has somebody who looks
// after it: the relay while it is scheduled, then the reconciler.
func (s *Store) busy() Outcome {
	s.crowded.Store(time.Now().Add(crowdedFor).UnixNano())
	return OutcomeBusy
}

// isLocked tells, without waiting, whether somebody has a message's row locked. A message that is not there is not locked.
func (s *Store) isLocked(ctx context.Context, id int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	// index: primary, in both. The lock ends with the statement.
	free, err := queryIDs(ctx, s.sql, "SELECT id FROM outbox_messages WHERE id = ? FOR UPDATE SKIP LOCKED", id)
	if err != nil || len(free) > 0 {
		return false, err
	}
	there, err := queryIDs(ctx, s.sql, "SELECT id FROM outbox_messages WHERE id = ?", id)
	return len(there) > 0, err
}
