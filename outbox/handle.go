package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"
)

const (
	// How far ahead of its due time a delivery may be and still be waited for.
	earlySlack = time.Second
	// How often a transaction that lost a deadlock is run again in one Handle, at most.
	maxReruns = 20
)

// Handle commits the effect of a delivery exactly once: the guard, which marks the message done if it still may take
// effect, and the effect run in one transaction (READ COMMITTED). The effect must do its database work through the
// transaction it is given, and neither end it nor run statements that do (DDL); it is run again from the start when the
// transaction loses a deadlock, so it must return such errors. An effect that has ended the transaction all the same is
// noticed: it counts as an attempt if it was rolled back or returned an error.
//
// When the error is nil, the outcome is written down and the delivery should be acknowledged, whatever the outcome. An
// effect that returns an error, panics, calls runtime.Goexit or overruns the deadline of ctx is rolled back, counted, and
// scheduled again after a pause (OutcomeRetry), until StoreConfig.MaxAttempts is reached (OutcomeDead). A delivery that comes
// back although its effect has begun three times is counted as if the effect had returned an error, without running it.
//
// When the error is not nil (the database is away, or ctx was canceled) nothing was written: keep the delivery and call Handle
// again, or let the broker deliver it again. Neither an outage nor a cancellation spends an attempt. Only an effect that loses its
// connection three times while the database answers others has brought that about (a statement above
// max_allowed_packet, a pause longer than wait_timeout), and is counted.
//
// A message that somebody has locked is waited for, for 5 s or the session's innodb_lock_wait_timeout, and is then OutcomeBusy: a worker
// that stands still in its effects, or a transaction that stays open, must not occupy all others. So is one whose effect has waited in
// vain for another row (error 1205): it is scheduled again after a pause and is not counted until it is an hour late. For that
// innodb_lock_wait_timeout, which is 50 s by default, must be well below the deadline of ctx.
//
// The effect runs in a goroutine of its own. One that has not returned a second after the end of ctx is given up: its
// transaction is rolled back, whatever it still does there returns sql.ErrTxDone, and Observer.Overran hears of it, because nothing
// can end its goroutine. Its statements must carry ctx, as those of a gorm effect do by themselves: the message cannot be written
// while one of them runs on. Beyond a thousand of these Handle waits for the effect after all.
//
// Handle waits for deliveries up to a second ahead of their due time. It is safe for concurrent use.
func (s *Store) Handle(ctx context.Context, d Delivery, effect func(tx *gorm.DB) error) (Outcome, error) {
	var after *aftermath
	outcome, err := s.handle(ctx, d, func(tx *sql.Tx) error {
		after = &aftermath{}
		return effect(after.in(toGorm(ctx, s.db, tx)))
	})
	if outcome == OutcomeDone { // so the effect has returned, and was not given up
		after.run()
	}
	return outcome, err
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
	if s.isCrowded() {
		locked, err := s.staysLocked(ctx, d.ID)
		switch {
		case err != nil:
			return "", err
		case locked:
			return OutcomeBusy, nil
		}
	}
	outcome, err := s.attempt(ctx, d, effect)
	if err == nil || ctx.Err() != nil || !hasWaited(err) {
		return outcome, err
	}
	locked, lockErr := s.isLocked(ctx, d.ID)
	if lockErr != nil || !locked {
		return "", err
	}
	s.setCrowded()
	return OutcomeBusy, nil
}

// attempt runs guard and effect until there is an outcome, and keeps the note of its begin true.
func (s *Store) attempt(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (Outcome, error) {
	begun, outcome, err := s.begin(ctx, d)
	if err != nil || outcome != "" {
		return outcome, err
	}
	outcome, ran, err := s.run(ctx, d, effect)
	switch {
	case err == nil:
		return outcome, nil
	case ran && ctx.Err() == nil && IsOutage(err):
		return s.suspect(ctx, d, begun, err)
	// Who loses every deadlock keeps the note: if that goes on, the effect brings it about.
	case begun && (ctx.Err() != nil || !IsRetryable(err)):
		s.takeBack(ctx, d)
	}
	return "", err
}

// run tries guard and effect until there is an outcome. Ran says of an error that it came from the effect or the commit.
func (s *Store) run(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (outcome Outcome, ran bool, err error) {
	for rerun := 0; ; rerun++ {
		ran, err := s.tryEffect(ctx, d, effect)
		ended, hasEnded := errors.AsType[*endedError](err)
		switch {
		case hasEnded:
			outcome, err := s.afterEnd(ctx, d, ended)
			return outcome, false, err
		case err == nil && ran:
			return OutcomeDone, true, nil
		case err == nil:
			outcome, wait, err := s.explain(ctx, d)
			if err != nil || outcome != "" {
				return outcome, false, err
			}
			if err := sleep(ctx, wait); err != nil {
				return "", false, err
			}
		case !ran && ctx.Err() == nil && hasWaited(err):
			return "", false, fmt.Errorf("wait for message %d, which somebody has locked: %w", d.ID, err)
		case ran && ctx.Err() == nil && mysqlNumber(err) == erLockWaitTimeout:
			outcome, err := s.putOff(ctx, d, err)
			return outcome, false, err
		case IsRetryable(err) && rerun < maxReruns && sleep(ctx, upTo(time.Millisecond*time.Duration(rerun+1))) == nil:
		case ran && isGuilty(ctx, err):
			outcome, err := s.countAttempt(ctx, d, err)
			return outcome, false, err
		default:
			return "", ran, fmt.Errorf("handle message %d: %w", d.ID, err)
		}
	}
}

// isGuilty tells whether the error of an effect counts as an attempt. One that was told to end is not to blame. One
// that has overrun its deadline is, whatever it returned then: if it was the database that kept it, the attempt cannot
// be written either.
func isGuilty(ctx context.Context, err error) bool {
	switch ctx.Err() {
	case nil:
		return !IsRetryable(err) && !IsOutage(err)
	case context.DeadlineExceeded:
		return true
	default:
		return false
	}
}

func upTo(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d))) //nolint:gosec // spreads load, guards nothing
}

// explain says why the guard did not match. An empty outcome means: try again after wait.
func (s *Store) explain(ctx context.Context, d Delivery) (outcome Outcome, wait time.Duration, err error) {
	v, err := s.judge(ctx, d)
	switch {
	case err != nil:
		return "", 0, err
	case v.outcome == OutcomeUnknown:
		return OutcomeUnknown, 0, s.keepDelivery(ctx, d, OutcomeUnknown, v.why)
	case v.outcome == OutcomeEarly && v.early <= earlySlack:
		return "", v.early, nil
	case v.outcome == OutcomeEarly:
		return s.putBack(ctx, d)
	}
	return v.outcome, 0, nil
}

// putBack schedules a message that arrived early, to be published without delay at its due time: a broker that fires too
// soon cannot make a loop of it.
func (s *Store) putBack(ctx context.Context, d Delivery) (Outcome, time.Duration, error) {
	n, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET
			state = 'scheduled', held = TRUE, revision = revision + 1, available_at = due_at, repairs = 0, begins = 0
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
