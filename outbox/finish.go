package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// RefusedError says why a delivery must not take effect.
type RefusedError struct {
	// Outcome is OutcomeDuplicate, OutcomeStale, OutcomeCanceled, OutcomeDead, OutcomeEarly, OutcomeForeign or OutcomeUnknown.
	Outcome Outcome
	// Early is how much too early a delivery is, for OutcomeEarly.
	Early time.Duration
}

func (e *RefusedError) Error() string { return "outbox: the delivery is " + string(e.Outcome) }

// MayRun says whether a delivery may take effect now: nil, or a *RefusedError that says why not. It is for consumers whose effects
// are elsewhere and cannot be in the guard's transaction, so it promises less than Handle: the message can be withdrawn, and another
// copy of the delivery be let through, until Finish has been called. The effect is at-least-once, and id and generation are what to
// deduplicate it by.
//
// Of d it takes ID, Generation, and Store, and Topic with Key, unless those are empty. It waits for deliveries up to a second ahead of their due time, and
// writes nothing: one that is earlier is the caller's to keep until then.
func (s *Store) MayRun(ctx context.Context, d Delivery) error {
	for {
		v, err := s.judge(ctx, d)
		if err != nil {
			return err
		}
		if v.outcome != OutcomeEarly || v.early > earlySlack {
			return v.refusal()
		}
		if err := sleep(ctx, v.early); err != nil {
			return err
		}
	}
}

// Finish marks the message of a delivery done, as the guard of Handle does, after its effect has happened elsewhere. Once more is no
// error, for as long as the done message is kept. A *RefusedError says that it was not done: the message has been withdrawn or
// moved since MayRun, is dead, or is not due.
//
// Of d it takes ID, Generation, and Store, and Topic with Key, unless those are empty.
func (s *Store) Finish(ctx context.Context, d Delivery) error {
	for rerun := 0; ; rerun++ {
		v, err := s.judge(ctx, d)
		if err != nil {
			return err
		}
		if v.outcome == OutcomeDuplicate {
			return nil
		}
		if v.outcome != "" {
			return v.refusal()
		}
		n, err := s.finish(ctx, d)
		switch {
		case err == nil && n > 0:
			s.cfg.Observer.delivered(v.topic, OutcomeDone, v.late)
			return nil
		case err == nil: // it moved since it was read
		case IsRetryable(err) && rerun < maxReruns && sleep(ctx, upTo(time.Millisecond*time.Duration(rerun+1))) == nil:
		default:
			return fmt.Errorf("finish message %d: %w", d.ID, err)
		}
	}
}

// finishing is how a live message becomes done: a guard has the WHERE. The argument is the retention in microseconds.
const finishing = `UPDATE outbox_messages SET
			state = 'done', live_key = NULL, revision = revision + 1, held = FALSE,
			available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, finished_at = UTC_TIMESTAMP(6)`

func (s *Store) finish(ctx context.Context, d Delivery) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: primary
	return execCount(ctx, s.sql, finishing+`
		WHERE id = ? AND generation = ? AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)`,
		s.cfg.Retention.Microseconds(), d.ID, d.Generation)
}

// verdict is what a reading of its row says of a delivery. Without an outcome it may take effect.
type verdict struct {
	outcome     Outcome
	why         string // for OutcomeUnknown
	topic       string
	early, late time.Duration
}

func (v verdict) refusal() error {
	if v.outcome == "" {
		return nil
	}
	return &RefusedError{v.outcome, v.early}
}

// judge reads the row by plain SELECT. It compares with d what is there of store, topic and key.
func (s *Store) judge(ctx context.Context, d Delivery) (v verdict, err error) {
	ledger, err := s.StoreID(ctx)
	if err != nil {
		return v, err
	}
	if d.Store != "" && d.Store != ledger {
		return verdict{outcome: OutcomeForeign}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var (
		key               string
		generation, early int64 // microseconds until due
		state             State
	)
	// index: primary
	err = s.sql.QueryRowContext(ctx, `SELECT topic, COALESCE(message_key, ''), generation, state,
			TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at)
		FROM outbox_messages WHERE id = ?`, d.ID).Scan(&v.topic, &key, &generation, &state, &early)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return verdict{outcome: OutcomeUnknown, why: "no message has this id"}, nil
	case err != nil:
		return v, fmt.Errorf("read message %d: %w", d.ID, err)
	case generation < d.Generation || d.Topic != "" && (v.topic != d.Topic || key != d.Key):
		v.outcome, v.why = OutcomeUnknown, "topic, key or generation are not those of the message with this id"
	case generation > d.Generation:
		v.outcome = OutcomeStale
	case state == Done:
		v.outcome = OutcomeDuplicate
	case state == Canceled:
		v.outcome = OutcomeCanceled
	case state == Dead:
		v.outcome = OutcomeDead
	case early > 0:
		v.outcome, v.early = OutcomeEarly, time.Duration(early)*time.Microsecond
	default:
		v.late = -time.Duration(early) * time.Microsecond
	}
	return v, nil
}
