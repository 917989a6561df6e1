package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

const (
	// How long an effect may take to return after its context has ended.
	effectGrace = time.Second
	// How many effects that were given up may still run. More would use up the process's memory.
	maxOverran = 1000
)

var (
	errOverran = errors.New("the effect did not return when its deadline had passed")
	errExited  = errors.New("the effect ended its goroutine (runtime.Goexit) instead of returning")
)

// tryEffect runs guard and effect, and says whether the guard let the effect run: an error with ran comes from the effect or
// the commit, an error without it from the guard.
func (s *Store) tryEffect(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (ran bool, err error) {
	return s.behind(ctx, d.Topic, func(ctx context.Context, tx *sql.Tx) (int64, error) {
		return execCount(ctx, tx, finishing+`
			WHERE id = ? AND topic = ? AND message_key <=> ? AND generation = ?
				AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)`,
			s.cfg.Retention.Microseconds(), d.ID, []byte(d.Topic), bytesOrNil(d.Key), d.Generation)
	}, effect)
}

// behind runs effect in the transaction of a guard, if the guard lets any message through.
func (s *Store) behind(ctx context.Context, topic string, guard func(ctx context.Context, tx *sql.Tx) (int64, error), effect func(tx *sql.Tx) error) (ran bool, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		guarding, cancel := context.WithTimeout(ctx, lockWait)
		n, err := guard(guarding, tx)
		cancel()
		if err != nil || n == 0 && guarded {
			return err
		}
		if _, err := tx.ExecContext(ctx, "SAVEPOINT duebox"); err != nil {
			return err
		}
		ran = true
		// If we die here, the transaction is rolled back by the server and the delivery comes again.
		effectErr := s.await(ctx, topic, func() error { return effect(tx) })
		if ctx.Err() != nil { // and so has the transaction: database/sql rolls it back by itself, as soon as no statement runs in it
			return cmp.Or(effectErr, ctx.Err())
		}
		if mysqlNumber(effectErr) != 0 && (IsRetryable(effectErr) || IsOutage(effectErr)) {
			return effectErr
		}
		// Whether the database is there, this tells and not the effect, which may read io.EOF anywhere. The savepoint is gone if
		// the guard's transaction is: committed or rolled back by the effect, by a DDL statement, or by the server in a
		// deadlock whose error the effect has swallowed.
		_, err = tx.ExecContext(ctx, "RELEASE SAVEPOINT duebox")
		switch {
		case mysqlNumber(err) == erNoSavepoint || errors.Is(err, sql.ErrTxDone):
			return &endedError{effectErr}
		case IsOutage(err) && effectErr != nil:
			return fmt.Errorf("%w; the effect returned: %s", err, errorText(effectErr))
		case effectErr != nil:
			return &ownError{effectErr}
		}
		return err
	})
	return ran, err
}

// ownError is the error of an effect whose transaction was well: whatever it wraps, it is neither a deadlock nor an outage.
type ownError struct{ effect error }

func (e *ownError) Error() string { return errorText(e.effect) }

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
		done, err := s.isDone(ctx, &d)
		if err != nil {
			return "", err
		}
		if done {
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

// isDone tells whether the guard of a delivery, or of a copy of it, is committed.
func (s *Store) isDone(ctx context.Context, d *Delivery) (bool, error) {
	record, err := s.LookupID(context.WithoutCancel(ctx), d.ID)
	return err == nil && record.State == Done && record.Generation == d.Generation, err
}

// await runs an effect in a goroutine of its own and returns its error, or gives it up some time after ctx has ended.
func (s *Store) await(ctx context.Context, topic string, effect func() error) error {
	returned := make(chan error, 1)
	go contain(effect, returned)
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(effectGrace)
	defer grace.Stop()
	select {
	case err := <-returned:
		return err
	case <-grace.C:
	}
	if s.overran.Add(1) > maxOverran {
		s.overran.Add(-1)
		return <-returned
	}
	s.cfg.Observer.overran(topic, 1)
	go func() {
		<-returned //nolint:errcheck // nobody is left whom it could tell
		s.overran.Add(-1)
		s.cfg.Observer.overran(topic, -1)
	}()
	return errOverran
}

// contain sends the error of an effect, also when it panics or ends its goroutine: one bad message must not end the
// process that serves the others.
func contain(effect func() error, returned chan<- error) {
	err := errExited
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		returned <- err
	}()
	err = effect()
}
