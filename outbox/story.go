package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Event is a part of a message's story.
type Event struct {
	At time.Time
	// What is enqueued, due, published, attempt failed, repaired, put off, died, finished, canceled, or what an operator has done (requeued,
	// canceled, rescheduled, published now); and next for what is to come.
	What string
	// Lateness is how long after the due time that was; nil where it means nothing.
	Lateness *time.Duration
	Actor    Actor // of an operator's action
	Detail   string
}

// Story is all that the ledger knows of a message.
type Story struct {
	Record

	ContentType  string
	Headers      map[string]string
	Payload      []byte // its first 64 KiB
	PayloadBytes int    // of the whole
	Events       []Event
}

// shownPayload is how many bytes of a payload a story has.
const shownPayload = 64 << 10

// storyAudits is how many operators' actions a story has, the newest.
const storyAudits = 100

// Story reads a message with what has become of it, in the order of time. The ledger keeps of each kind of event when it was last:
// details say how often. It returns ErrNoMessage if there is no such message.
func (o *Operator) Story(ctx context.Context, id int64) (s Story, err error) {
	read, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var (
		headers []byte
		now     int64
	)
	// index: primary
	err = readRecord(o.store.sql.QueryRowContext(read, `SELECT `+recordColumns()+`, content_type, headers, LEFT(payload, ?), LENGTH(payload),
			`+micros1970("UTC_TIMESTAMP(6)")+`
		FROM outbox_messages WHERE id = ?`, shownPayload, id), &s.Record, &s.ContentType, &headers, &s.Payload, &s.PayloadBytes, &now)
	if errors.Is(err, sql.ErrNoRows) {
		return s, ErrNoMessage
	}
	if err != nil {
		return s, fmt.Errorf("read message %d: %w", id, err)
	}
	if s.Headers, err = decodeHeaders(headers); err != nil {
		s.Headers = map[string]string{} // the relay says so of them, too
	}
	acts, err := o.Audit(ctx, AuditFilter{MessageID: id, Limit: storyAudits})
	if err != nil {
		return s, err
	}
	s.Events = events(&s.Record, acts, fromMicros(now))
	return s, nil
}

// events tells a message's story from its row and the actions of operators.
func events(r *Record, acts []AuditEntry, now time.Time) []Event {
	var all []Event
	add := func(at time.Time, what, detail string) *Event {
		all = append(all, Event{At: at, What: what, Detail: detail})
		return &all[len(all)-1]
	}
	late := func(e *Event) {
		d := e.At.Sub(r.DueAt)
		e.Lateness = &d
	}
	moves := int(r.Generation) - 1
	withdrawn := false
	for _, a := range acts {
		add(a.At, a.Action.done(), a.Detail).Actor = a.Actor
		withdrawn = withdrawn || a.Action == ActCancel
		if a.Action == ActReschedule || a.Action == ActPublishNow {
			moves--
		}
	}
	add(r.CreatedAt, "enqueued", times(moves, "moved or replaced since by the application"))
	if r.State != Canceled || r.DueAt.Before(r.FinishedAt) {
		add(r.DueAt, "due", "")
	}
	if !r.PublishedAt.IsZero() {
		e := add(r.PublishedAt, "published", "")
		if r.Publishes > 1 {
			e.Detail = fmt.Sprintf("the last of %d times", r.Publishes)
		}
		if r.PublishedAt.After(r.DueAt) {
			late(e)
		}
	}
	switch {
	case r.FailedAt.IsZero():
	case r.State == Dead:
		late(add(r.FailedAt, "died", troubles(r)))
	case r.Repairs > 0:
		late(add(r.FailedAt, "repaired", troubles(r)))
	case r.Attempts > 0:
		late(add(r.FailedAt, "attempt failed", troubles(r)))
	default:
		late(add(r.FailedAt, "put off", r.LastError))
	}
	switch r.State {
	case Done:
		e := add(r.FinishedAt, "finished", "")
		if r.Untracked {
			e.Detail = "the broker has it; nobody keeps track of its effect"
		} else {
			late(e)
		}
	case Canceled:
		if !withdrawn {
			add(r.FinishedAt, ActCancel.done(), "by the application")
		}
	case Scheduled:
		if r.AvailableAt.After(r.DueAt) && r.AvailableAt.After(now) {
			add(r.AvailableAt, "next", "it is handed over again")
		}
	case Published:
		if r.AvailableAt.After(now) {
			add(r.AvailableAt, "next", "it is taken for lost if it has had no effect by then")
		}
	case Dead:
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

// troubles says what has gone wrong with a message so far.
func troubles(r *Record) string {
	text := ""
	if r.Attempts > 0 {
		text = times(r.Attempts, "failed")
	}
	if r.Repairs > 0 {
		if text != "" {
			text += ", "
		}
		text += times(r.Repairs, "repaired")
	}
	if text == "" {
		return r.LastError
	}
	return text + ": " + r.LastError
}

// times says how often something was; nothing of what never was.
func times(n int, what string) string {
	switch {
	case n < 1:
		return ""
	case n == 1:
		return what + " once"
	}
	return fmt.Sprintf("%s %d times", what, n)
}
