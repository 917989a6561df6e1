package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// How long a delivery waits for somebody who has its message's row locked: for an effect of another copy, or a caller's open
	// transaction, that is a long time.
	lockWait = 5 * time.Second
	// How long after such a wait other deliveries ask before they wait: who has locked one row for so long may have locked
	// hundreds, and waiting for each would stop the topic.
	crowdedFor = 10 * time.Second
	// The settler holds a row for milliseconds, and is not to be taken for somebody who holds it for long: so who finds a row locked looks
	// once more, unless so many were before, in a row, that somebody has locked very many.
	lockedAgain = 100 * time.Millisecond
	lockedMany  = 20
	// An effect that has waited in vain for a row of its own is put off without counting, until its message is so late. One that
	// locks itself out must come to an end.
	patientFor = time.Hour
)

// hasWaited reports whether err may say that a row was locked for too long.
func hasWaited(err error) bool {
	return mysqlNumber(err) == erLockWaitTimeout || errors.Is(err, context.DeadlineExceeded)
}

// isCrowded tells whether a delivery has lately met a row that stayed locked.
func (s *Store) isCrowded() bool { return time.Now().UnixNano() < s.crowded.Load() }

// setCrowded notes that a delivery has waited in vain.
func (s *Store) setCrowded() { s.crowded.Store(time.Now().Add(crowdedFor).UnixNano()) }

// staysLocked tells whether somebody has a message's row locked for longer than the settler does.
func (s *Store) staysLocked(ctx context.Context, id int64) (bool, error) {
	locked, err := s.isLocked(ctx, id)
	if err != nil || !locked {
		s.streak.Store(0)
		return false, err
	}
	if s.streak.Add(1) > lockedMany {
		s.setCrowded()
		return true, nil
	}
	if err := sleep(ctx, lockedAgain); err != nil {
		return false, err
	}
	return s.isLocked(ctx, id)
}

// putOff schedules a message again whose effect has waited for a row that somebody holds locked, after a pause that grows with its lateness
// from 2 s to a minute. The effect is not to blame, and whoever holds a product's row must not occupy all workers.
func (s *Store) putOff(ctx context.Context, d Delivery, cause error) (Outcome, error) {
	write, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: primary
	n, err := execCount(write, s.sql, `UPDATE outbox_messages SET
			state = 'scheduled', available_at = UTC_TIMESTAMP(6)
				+ INTERVAL LEAST(60, GREATEST(2, TIMESTAMPDIFF(SECOND, due_at, UTC_TIMESTAMP(6)) DIV 2)) SECOND,
			revision = revision + 1, held = FALSE, begins = 0, repairs = 0, last_error = ?, failed_at = UTC_TIMESTAMP(6)
		WHERE id = ? AND generation = ? AND attempts = ? AND state IN ('scheduled', 'published')
			AND due_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`,
		errorText(cause), d.ID, d.Generation, d.Attempt, patientFor.Microseconds())
	if err != nil {
		return "", fmt.Errorf("put message %d off: %w", d.ID, err)
	}
	if n == 0 { // too late for that, or another copy has been counted
		return s.countAttempt(ctx, d, cause)
	}
	return OutcomeBusy, nil
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
