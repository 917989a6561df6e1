package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// State is where a message is in its life; see the package comment.
type State string

// The states of a message.
const (
	Scheduled State = "scheduled"
	Published State = "published"
	Done      State = "done"
	Canceled  State = "canceled"
	Dead      State = "dead"
)

// Record is a row of the ledger without its payload, as of one reading.
type Record struct {
	ID          int64
	Topic       string
	Key         string // empty: none
	State       State
	Generation  int64
	Attempts    int
	Publishes   int
	Repairs     int
	Untracked   bool
	LastError   string // of the attempts and repairs that are counted; it stays when the message has ended well. Empty: none
	DueAt       time.Time
	AvailableAt time.Time // when somebody should next touch the row, see the package comment; zero: it is dead
	CreatedAt   time.Time
	FailedAt    time.Time // when LastError was written; zero: never
	PublishedAt time.Time // last; zero: never
	FinishedAt  time.Time // zero: not yet
}

// version is a record with the revision that every compare-and-set asks for.
type version struct {
	Record
	revision int64
}

// Lateness is how long after its due time the message has taken effect, or after it was written if that was later; false if it has not, or is
// untracked, and nobody can say.
func (r *Record) Lateness() (time.Duration, bool) {
	if r.State != Done || r.Untracked {
		return 0, false
	}
	return r.FinishedAt.Sub(r.waitsFrom()), true
}

// LateBy is the same at now, of the database, for a message that should have had its effect and has not: it is scheduled, published or dead, and
// its time was before now; else false.
func (r *Record) LateBy(now time.Time) (time.Duration, bool) {
	late := now.Sub(r.waitsFrom())
	return late, r.FinishedAt.IsZero() && late > 0
}

// waitsFrom is the due time, or when the message was written if that was later.
func (r *Record) waitsFrom() time.Time {
	if r.CreatedAt.After(r.DueAt) {
		return r.CreatedAt
	}
	return r.DueAt
}

// Lookup reads the live message with this topic and key, outside of any transaction; ErrNoMessage if there is none.
func (s *Store) Lookup(ctx context.Context, topic, key string) (Record, error) {
	// index: live (topic, live_key)
	return lookup(ctx, s.sql, "topic = ? AND live_key = ?", []byte(topic), []byte(key))
}

// LookupID reads the message with this id, in whatever state; ErrNoMessage if there is none.
func (s *Store) LookupID(ctx context.Context, id int64) (Record, error) {
	return lookup(ctx, s.sql, "id = ?", id)
}

func lookup(ctx context.Context, c conn, where string, args ...any) (r Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = readRecord(c.QueryRowContext(ctx, "SELECT "+recordColumns()+" FROM outbox_messages WHERE "+where, args...), &r)
	if errors.Is(err, sql.ErrNoRows) {
		return Record{}, ErrNoMessage
	}
	if err != nil {
		return Record{}, fmt.Errorf("look up message: %w", err)
	}
	return r, nil
}

// recordColumns is what readRecord reads.
func recordColumns() string {
	return `id, topic, COALESCE(message_key, ''), state, generation, attempts, publishes, repairs, untracked,
		COALESCE(last_error, ''), ` + micros1970("due_at") + `, COALESCE(` + micros1970("available_at") + `, -1), ` + micros1970("created_at") + `,
		COALESCE(` + micros1970("failed_at") + `, -1), ` + micros1970("published_at") + `, COALESCE(` + micros1970("finished_at") + `, -1)`
}

// row is what *sql.Row and *sql.Rows have in common.
type row interface{ Scan(into ...any) error }

func readRecord(from row, r *Record, more ...any) error {
	var due, available, created, failed, published, finished int64
	err := from.Scan(append([]any{
		&r.ID, &r.Topic, &r.Key, &r.State, &r.Generation, &r.Attempts, &r.Publishes, &r.Repairs, &r.Untracked,
		&r.LastError, &due, &available, &created, &failed, &published, &finished,
	}, more...)...)
	if err != nil {
		return err
	}
	r.DueAt, r.CreatedAt = fromMicros(due), fromMicros(created)
	r.AvailableAt, r.FailedAt, r.FinishedAt = fromNullable(available), fromNullable(failed), fromNullable(finished)
	if published > 0 {
		r.PublishedAt = fromMicros(published)
	}
	return nil
}
