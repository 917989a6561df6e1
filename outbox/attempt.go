package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	// How often the effect of a delivery that came back may begin and not come to an end before that counts as an attempt.
	maxBegins = 3
	// Bounds takeBack: a drain does not wait for long.
	takeBackTimeout = 500 * time.Millisecond
)

var errDiedHandling = errors.New("died while handling: the effect began three times and came to no end")

// begin notes that the effect of a delivery that came back is about to run. The note goes when the attempt is counted, when the
// message is put back and when the effect was interrupted through no fault of its own, so what stays was left by processes
// that died, by effects that lost deadlocks again and again, and by those that lost their connections (suspect). A delivery that only waited in such a process leaves none. A first delivery is not noted: it costs nothing.
//
// An outcome says that the effect shall not run: it was noted too often, or another copy of the delivery has been counted.
func (s *Store) begin(ctx context.Context, d Delivery) (begun bool, outcome Outcome, err error) {
	if d.Redeliveries == 0 {
		return false, "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		// index: primary. The revision stays: this is no news for whoever publishes or settles the message.
		n, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET begins = begins + 1
			WHERE id = ? AND generation = ? AND attempts = ? AND begins < ?
				AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)`, d.ID, d.Generation, d.Attempt, maxBegins)
		if err != nil {
			return false, "", fmt.Errorf("note the begin of message %d: %w", d.ID, err)
		}
		if n > 0 {
			return true, "", nil
		}
		var attempts, begins int
		err = s.sql.QueryRowContext(ctx, `SELECT attempts, begins FROM outbox_messages
			WHERE id = ? AND generation = ? AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)`,
			d.ID, d.Generation).Scan(&attempts, &begins)
		switch {
		case errors.Is(err, sql.ErrNoRows): // the guard says why
			return false, "", nil
		case err != nil:
			return false, "", fmt.Errorf("read message %d: %w", d.ID, err)
		case attempts != d.Attempt:
			return false, OutcomeDuplicate, nil
		case begins >= maxBegins:
			outcome, err := s.countAttempt(ctx, d, errDiedHandling)
			return false, outcome, err
		}
	}
}

// suspect deals with an effect that has lost its connection. While the database does not answer, that is why. Else it is noted like an
// effect that began and came to no end, and counted when that was so often: once may be a database that restarts, or
// somebody's KILL, but not each time.
func (s *Store) suspect(ctx context.Context, d Delivery, begun bool, cause error) (Outcome, error) {
	ask, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if !begun {
		// index: primary. Not matched: the commit went through after all, or another copy was counted, as the guard will tell.
		n, err := execCount(ask, s.sql, `UPDATE outbox_messages SET begins = begins + 1
			WHERE id = ? AND generation = ? AND attempts = ? AND begins < ? AND state IN ('scheduled', 'published')`,
			d.ID, d.Generation, d.Attempt, maxBegins)
		if err != nil || n == 0 {
			return "", cause
		}
	}
	begins, err := queryIDs(ask, s.sql, "SELECT begins FROM outbox_messages WHERE id = ?", d.ID) // index: primary
	if err != nil || len(begins) == 0 || begins[0] < maxBegins {
		return "", cause
	}
	return s.countAttempt(ctx, d, cause)
}

// takeBack removes the note of begin. If it cannot, because the database is away, one note too many is left.
func (s *Store) takeBack(ctx context.Context, d Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	// index: primary
	_, _ = s.sql.ExecContext(ctx, `UPDATE outbox_messages SET begins = begins - 1
		WHERE id = ? AND generation = ? AND attempts = ? AND begins > 0`, d.ID, d.Generation, d.Attempt)
}

// countAttempt writes down that the effect returned an error. The delivery's own attempt is in the WHERE, so that a second
// copy of it never counts twice. It outlives ctx, which may be the very deadline that the effect overran.
func (s *Store) countAttempt(ctx context.Context, d Delivery, cause error) (Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	n, outcome, err := s.spendAttempt(ctx, d.ID, d.Attempt, "generation", d.Generation, cause)
	if err != nil {
		return "", fmt.Errorf("count attempt %d of message %d (%w): %w", d.Attempt+1, d.ID, cause, err)
	}
	if n == 0 {
		return OutcomeDuplicate, nil
	}
	if outcome == OutcomeDead {
		s.cfg.Observer.died("attempts", 1)
	}
	d.Attempt++
	s.cfg.Observer.attempted(d, outcome, errorText(cause))
	return outcome, nil
}

// spendAttempt adds one to the attempts of a live row whose column (generation or revision) still has the given value.
func (s *Store) spendAttempt(ctx context.Context, id int64, attempt int, column string, value int64, cause error) (int64, Outcome, error) {
	outcome, state := OutcomeRetry, Scheduled
	var pause any = max(0, s.cfg.Backoff(attempt+1).Microseconds())
	if attempt+1 >= s.cfg.MaxAttempts {
		outcome, state, pause = OutcomeDead, Dead, nil // a time plus INTERVAL NULL is NULL
	}
	n, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET
			state = ?, available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
			attempts = ?, repairs = 0, begins = 0, revision = revision + 1, held = FALSE, last_error = ?, failed_at = UTC_TIMESTAMP(6)
		WHERE id = ? AND attempts = ? AND `+column+` = ? AND state IN ('scheduled', 'published')`,
		string(state), pause, attempt+1, errorText(cause), id, attempt, value)
	return n, outcome, err
}
