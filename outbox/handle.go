package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"gorm.io/gorm"
)

const (
	// How far ahead of its due time a delivery may be and still be waited for.
	earlySlack = time.Second
	// How often a delivery may come back unfinished before it counts as an attempt.
	maxRedeliveries = 3
	// How often a transaction that lost a deadlock is run again in one Handle, at most.
	maxReruns = 20
)

var errDiedHandling = errors.New("died while handling")

// Handle commits the effect of a delivery exactly once: the guard, which marks the message done if it still may take
// effect, and the effect run in one transaction (READ COMMITTED). The effect must do its database work through the
// transaction it is given, and neither end it nor run statements that do (DDL); it is run again from the start when the
// transaction loses a deadlock, so it must return such errors. An effect that has ended the transaction all the same is
// noticed: it counts as an attempt if it was rolled back or returned an error.
//
// When the error is nil, the outcome is written down and the delivery should be acknowledged, whatever the outcome. An
// effect that returns an error or panics is rolled back, counted, and scheduled again after a pause (OutcomeRetry), until
// StoreConfig.MaxAttempts is reached (OutcomeDead). A delivery that came back unfinished three times is counted as if its
// effect had returned an error, without running it.
//
// When the error is not nil (the database is away, or ctx ended) nothing was written: keep the delivery and call Handle
// again, or let the broker deliver it again. Such an outage spends no attempt.
//
// Handle waits for deliveries up to a second ahead of their due time. It is safe for concurrent use.
func (s *Store) Handle(ctx context.Context, d Delivery, effect func(tx *gorm.DB) error) (Outcome, error) {
	return s.handle(ctx, d, func(tx *sql.Tx) error { return effect(toGorm(ctx, s.db, tx)) })
}

func (s *Store) handle(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (Outcome, error) {
	outcome, err := s.decide(ctx, d, effect)
	if err != nil {
		return "", err
	}
	var lateness time.Duration
	if outcome == OutcomeDone {
		if now, err := s.Now(ctx); err == nil {
			lateness = now.Sub(d.DueAt)
		}
	}
	s.cfg.Observer.delivered(d.Topic, outcome, lateness)
	return outcome, nil
}

func (s *Store) decide(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (Outcome, error) {
	ledger, err := s.StoreID(ctx)
	if err != nil {
		return "", err
	}
	if d.Store != ledger {
		return OutcomeForeign, s.keepDelivery(ctx, d, OutcomeForeign, "belongs to store "+clip(d.Store))
	}
	if d.Redeliveries >= maxRedeliveries {
		return s.countAttempt(ctx, d, errDiedHandling)
	}
	for rerun := 0; ; rerun++ {
		ran, err := s.tryEffect(ctx, d, effect)
		ended, hasEnded := errors.AsType[*endedError](err)
		switch {
		case hasEnded:
			return s.afterEnd(ctx, d, ended)
		case err == nil && ran:
			return OutcomeDone, nil
		case err == nil:
			outcome, wait, err := s.explain(ctx, d)
			if err != nil || outcome != "" {
				return outcome, err
			}
			if err := sleep(ctx, wait); err != nil {
				return "", err
			}
		case IsRetryable(err) && rerun < maxReruns:
			if err := sleep(ctx, time.Duration(rand.Int64N(int64(time.Millisecond)*int64(rerun+1)))); err != nil { //nolint:gosec // spreads load, guards nothing
				return "", err
			}
		case IsRetryable(err), IsOutage(err), !ran, context.Cause(ctx) != nil && errors.Is(err, context.Canceled):
			return "", fmt.Errorf("handle message %d: %w", d.ID, err)
		default:
			return s.countAttempt(ctx, d, err)
		}
	}
}

// tryEffect runs guard and effect, and says whether the guard let the effect run: an error with ran comes from the effect or
// the commit, an error without it from the guard.
func (s *Store) tryEffect(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (ran bool, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		n, err := execCount(ctx, tx, `UPDATE outbox_messages SET
				state = 'done', live_key = NULL, revision = revision + 1, held = FALSE,
				available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, finished_at = UTC_TIMESTAMP(6)
			WHERE id = ? AND topic = ? AND message_key <=> ? AND generation = ?
				AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)`,
			s.cfg.Retention.Microseconds(), d.ID, []byte(d.Topic), bytesOrNil(d.Key), d.Generation)
		if err != nil || n == 0 && guarded {
			return err
		}
		ran = true
		if _, err := tx.ExecContext(ctx, "SAVEPOINT duebox"); err != nil {
			return err
		}
		// If we die here, the transaction is rolled back by the server and the delivery comes again.
		effectErr := recovered(func() error { return effect(tx) })
		if effectErr != nil && (IsRetryable(effectErr) || IsOutage(effectErr) || ctx.Err() != nil) {
			return effectErr
		}
		// The savepoint is gone if the guard's transaction is: committed or rolled back by the effect, by a DDL statement, or by
		// the server in a deadlock whose error the effect has swallowed.
		_, err = tx.ExecContext(ctx, "RELEASE SAVEPOINT duebox")
		if mysqlNumber(err) == erNoSavepoint || errors.Is(err, sql.ErrTxDone) {
			return &endedError{effectErr}
		}
		return cmp.Or(effectErr, err)
	})
	return ran, err
}

// endedError says that an effect has ended the transaction of its guard.
type endedError struct{ effect error }

func (e *endedError) Error() string {
	text := "the effect has ended its own transaction, or swallowed the error of a deadlock that did"
	if e.effect != nil {
		text += "; it returned: " + errorText(e.effect)
	}
	return text
}

// afterEnd finds out what an effect has left that ended the guard's transaction. Rolled back, it counts as an attempt. Committed,
// the guard stands: an effect that returned nil is done, one that returned an error shall run again, so its message is
// given back, unless its key has been taken by another since.
func (s *Store) afterEnd(ctx context.Context, d Delivery, ended *endedError) (Outcome, error) {
	if ended.effect == nil {
		record, err := s.LookupID(context.WithoutCancel(ctx), d.ID)
		if err != nil {
			return "", err
		}
		if record.State == Done && record.Generation == d.Generation {
			return OutcomeDone, nil
		}
		return s.countAttempt(ctx, d, ended)
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if _, err := execCount(undo, s.sql, `UPDATE outbox_messages SET
			state = 'scheduled', live_key = message_key, revision = revision + 1, available_at = UTC_TIMESTAMP(6), finished_at = NULL
		WHERE id = ? AND generation = ? AND state = 'done'`, d.ID, d.Generation); err != nil {
		return "", fmt.Errorf("give message %d back: %w", d.ID, err)
	}
	return s.countAttempt(ctx, d, ended)
}

// recovered turns a panic of an effect into its error: one bad message must not end the process that serves the others.
func recovered(effect func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return effect()
}

// explain says why the guard did not match. An empty outcome means: try again after wait.
func (s *Store) explain(ctx context.Context, d Delivery) (outcome Outcome, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var (
		topic, key string
		generation int64
		state      State
		early      int64 // microseconds until due
	)
	err = s.sql.QueryRowContext(ctx, `SELECT topic, COALESCE(message_key, ''), generation, state,
			TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at)
		FROM outbox_messages WHERE id = ?`, d.ID).Scan(&topic, &key, &generation, &state, &early)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return OutcomeUnknown, 0, s.keepDelivery(ctx, d, OutcomeUnknown, "no message has this id")
	case err != nil:
		return "", 0, fmt.Errorf("read message %d: %w", d.ID, err)
	case topic != d.Topic || key != d.Key || generation < d.Generation:
		return OutcomeUnknown, 0, s.keepDelivery(ctx, d, OutcomeUnknown, "topic, key or generation are not those of the message with this id")
	case generation > d.Generation:
		return OutcomeStale, 0, nil
	case state == Done:
		return OutcomeDuplicate, 0, nil
	case state == Canceled:
		return OutcomeCanceled, 0, nil
	case state == Dead:
		return OutcomeDead, 0, nil
	case early <= earlySlack.Microseconds():
		return "", max(0, time.Duration(early)*time.Microsecond), nil
	}
	return s.putBack(ctx, d)
}

// putBack schedules a message that arrived early, to be published without delay at its due time: a broker that fires too
// soon cannot make a loop of it.
func (s *Store) putBack(ctx context.Context, d Delivery) (Outcome, time.Duration, error) {
	n, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET
			state = 'scheduled', held = TRUE, revision = revision + 1, available_at = due_at
		WHERE id = ? AND generation = ? AND state IN ('scheduled', 'published') AND due_at > UTC_TIMESTAMP(6)`,
		d.ID, d.Generation)
	if err != nil {
		return "", 0, fmt.Errorf("put message %d back: %w", d.ID, err)
	}
	if n == 0 { // it moved, or came due, meanwhile: ask again
		return "", 0, nil
	}
	return OutcomeEarly, 0, nil
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
			attempts = ?, revision = revision + 1, held = FALSE, last_error = ?
		WHERE id = ? AND attempts = ? AND `+column+` = ? AND state IN ('scheduled', 'published')`,
		string(state), pause, attempt+1, errorText(cause), id, attempt, value)
	return n, outcome, err
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
