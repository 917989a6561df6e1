package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// Action is what an operator does to a message.
type Action string

// The actions of operators.
const (
	// ActRequeue gives a dead message another life: it is scheduled for its due time, which means at once if that is over, with
	// attempts and repairs at 0 and no last error.
	ActRequeue Action = "requeue"
	// ActCancel withdraws a live message, as Store.Cancel does.
	ActCancel Action = "cancel"
	// ActReschedule moves a live message to another due time, as Store.Reschedule does.
	ActReschedule Action = "reschedule"
	// ActPublishNow makes a live message due at once, as its next generation. One that is due already keeps its due time, so that its
	// lateness stays true, and waits for nothing any more.
	ActPublishNow Action = "publish-now"
)

// states are those of messages that the action can be done to.
func (a Action) states() []State {
	switch a {
	case ActRequeue:
		return []State{Dead}
	case ActCancel, ActReschedule, ActPublishNow:
		return []State{Scheduled, Published, Dead}
	}
	return nil
}

// done is the action as a story tells it.
func (a Action) done() string {
	switch a {
	case ActRequeue:
		return "requeued"
	case ActCancel:
		return "canceled"
	case ActReschedule:
		return "rescheduled"
	case ActPublishNow:
		return "published now"
	}
	return string(a)
}

// Command is an action with what it needs.
type Command struct {
	Action Action
	// DueAt is where ActReschedule moves the message to, rounded up to the microsecond. Zero: the database's now plus Delay.
	DueAt time.Time
	// Delay is only used with a zero DueAt.
	Delay time.Duration
}

func (c Command) check() error {
	switch {
	case c.Action.states() == nil:
		return invalid("action", "action %q is not requeue, cancel, reschedule or publish-now", clip(string(c.Action)))
	case c.Action != ActReschedule && (!c.DueAt.IsZero() || c.Delay != 0):
		return invalid("due_at", "a due time is for reschedule only")
	case !c.DueAt.IsZero():
		return checkDue(c.DueAt)
	case c.Delay < 0 || c.Delay > maxDelay:
		return invalid("delay", "delay %v is not in 0 to %v", c.Delay, maxDelay)
	}
	return nil
}

// maxDelay keeps due times within what the wire expresses.
const maxDelay = 100 * 365 * 24 * time.Hour

// Actor is who acts.
type Actor struct {
	Name string // 1 to 64 printable characters
	Via  string // from where: 1 to 16 bytes, such as api, ui or cli
}

func (a Actor) check() error {
	const longestName, longestVia = 64, 16
	switch {
	case a.Name == "" || !isPrintable(a.Name) || utf8.RuneCountInString(a.Name) > longestName:
		return invalid("actor", "actor %q is not 1 to %d printable characters", clip(a.Name), longestName)
	case !isName(a.Via, longestVia):
		return invalid("via", "via %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(a.Via), longestVia)
	}
	return nil
}

// ErrWrongState says that a message is not in a state for what was to be done to it.
var ErrWrongState = errors.New("outbox: the message is not in a state for that")

// ProtectedError says that the application does not let operators do that to its message, why not, and what to do instead.
type ProtectedError struct{ Err error }

func (e *ProtectedError) Error() string { return "outbox: the message is protected: " + e.Err.Error() }

// Unwrap returns the application's own error.
func (e *ProtectedError) Unwrap() error { return e.Err }

// OperatorConfig tunes an Operator. The zero value is usable.
type OperatorConfig struct {
	// Grace must be that of the relays. Default 30 s.
	Grace time.Duration
	// Protect returns a *ProtectedError, which says what to do instead, if the application does not want a command done to a message of
	// its own as it is now, and any other error if it cannot tell. The state of the message allows the command. It is asked
	// outside of transactions. Default: everything is allowed.
	Protect func(ctx context.Context, c Command, r Record) error
}

// Operator is what people do to the ledger from outside: they look at messages, act on them, and see what others have done. It is
// safe for concurrent use.
type Operator struct {
	store *Store
	cfg   OperatorConfig
}

// Operator returns the operator's calls. It does no I/O.
func (s *Store) Operator(cfg OperatorConfig) *Operator {
	setDefault(&cfg.Grace, 30*time.Second)
	if cfg.Protect == nil {
		cfg.Protect = func(context.Context, Command, Record) error { return nil }
	}
	return &Operator{store: s, cfg: cfg}
}

// Act does a command to the message with this id and returns it as it is then. The audit entry is written in the same transaction:
// it exists if and only if the command was done.
//
// It returns ErrNoMessage if there is no such message, ErrWrongState if it is not in a state for that, a *ProtectedError if the
// application does not want it, and an error that wraps ErrInvalidMessage for a command or an actor that breaks a rule. A message that
// changes all the time makes it give up with an error for which IsRetryable does not hold.
func (o *Operator) Act(ctx context.Context, by Actor, id int64, c Command) (Record, error) {
	if err := errors.Join(by.check(), c.check()); err != nil {
		return Record{}, err
	}
	for range actTries {
		r, err := o.version(ctx, id)
		if err != nil {
			return Record{}, err
		}
		if err := o.judge(ctx, c, &r.Record); err != nil {
			return Record{}, err
		}
		changed, err := o.change(ctx, by, c, []version{r}, "")
		if err != nil {
			return Record{}, err
		}
		if len(changed) > 0 {
			return o.store.LookupID(ctx, id)
		}
	}
	return Record{}, fmt.Errorf("%s message %d: it changes all the time", c.Action, id)
}

// actTries is how often Act looks again at a message that has changed since it was read.
const actTries = 5

func (o *Operator) version(ctx context.Context, id int64) (v version, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: primary
	err = readRecord(o.store.sql.QueryRowContext(ctx, "SELECT "+recordColumns()+", revision FROM outbox_messages WHERE id = ?", id), &v.Record, &v.revision)
	if errors.Is(err, sql.ErrNoRows) {
		return v, ErrNoMessage
	}
	return v, wrap("look up message", err)
}

// judge says why a command cannot be done to a message, or nil.
func (o *Operator) judge(ctx context.Context, c Command, r *Record) error {
	if !slices.Contains(c.Action.states(), r.State) {
		return fmt.Errorf("%w: it is %s, and %s is for what is %s", ErrWrongState, r.State, c.Action, oneOf(c.Action.states()))
	}
	return o.cfg.Protect(ctx, c, *r)
}

// change does a command to those of rows whose revision is still the one that was read, in one transaction with their audit entries,
// and returns them. Lock is how the rows are locked beyond FOR UPDATE.
func (o *Operator) change(ctx context.Context, by Actor, c Command, rows []version, lock string) (changed []version, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	set, args := o.set(c)
	err = o.store.Direct().do(ctx, func(tx *sql.Tx) error {
		changed, err = o.unchanged(ctx, tx, rows, lock)
		if err != nil || len(changed) == 0 {
			return err
		}
		ids := make([]any, len(changed))
		for i, r := range changed {
			ids[i] = r.ID
		}
		// First the entries, so that what comes of the command is later in a story.
		if err := note(ctx, tx, by, c, changed); err != nil {
			return err
		}
		// index: primary
		_, err := execCount(ctx, tx, "UPDATE outbox_messages SET "+set+" WHERE id IN ("+marks(len(ids))+")", append(slices.Clone(args), ids...)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s messages: %w", c.Action, err)
	}
	return changed, nil
}

// set is what a command writes.
func (o *Operator) set(c Command) (set string, args []any) {
	switch c.Action {
	case ActRequeue:
		return `state = 'scheduled', attempts = 0, begins = 0, repairs = 0, last_error = NULL, failed_at = NULL, held = FALSE,
			revision = revision + 1, available_at = GREATEST(due_at, UTC_TIMESTAMP(6))`, nil
	case ActCancel:
		return canceling, []any{o.store.cfg.Retention.Microseconds()}
	case ActReschedule:
		due, arg := when{c.DueAt, c.Delay}.sql()
		return again + `, due_at = ` + due + `, available_at = GREATEST(` + due + `, UTC_TIMESTAMP(6))`, []any{arg, arg}
	case ActPublishNow:
		return again + `, due_at = LEAST(due_at, UTC_TIMESTAMP(6)), available_at = UTC_TIMESTAMP(6)`, nil
	}
	return "", nil
}

// unchanged locks rows and returns those whose revision is still the one that was read.
func (o *Operator) unchanged(ctx context.Context, tx *sql.Tx, rows []version, lock string) (same []version, err error) {
	ids := make([]any, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	// index: primary
	found, err := queryAll(ctx, tx, func(rows *sql.Rows, v *rowVersion) error { return rows.Scan(&v.id, &v.revision) },
		`SELECT id, revision FROM outbox_messages FORCE INDEX (PRIMARY) WHERE id IN (`+marks(len(ids))+`) ORDER BY id FOR UPDATE`+lock, ids...)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	revisions := make(map[int64]int64, len(found))
	for _, v := range found {
		revisions[v.id] = v.revision
	}
	for _, r := range rows {
		if revision, there := revisions[r.ID]; there && revision == r.revision {
			same = append(same, r)
		}
	}
	return same, nil
}

// beforeOrAll is an id that none reaches for 0.
func beforeOrAll(before int64) int64 {
	if before == 0 {
		return math.MaxInt64
	}
	return before
}

// oneOf lists states as a sentence does.
func oneOf(states []State) (text string) {
	for i, s := range states {
		switch {
		case i > 0 && i == len(states)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += string(s)
	}
	return text
}

// RequestRun is Store.RequestRun.
func (o *Operator) RequestRun(ctx context.Context, scope Scope) (int64, error) {
	return o.store.RequestRun(ctx, scope)
}

// LookupRun is Store.LookupRun.
func (o *Operator) LookupRun(ctx context.Context, id int64) (Run, error) {
	return o.store.LookupRun(ctx, id)
}

// Runs is Store.Runs.
func (o *Operator) Runs(ctx context.Context, before int64, limit int) ([]Run, error) {
	return o.store.Runs(ctx, before, limit)
}
