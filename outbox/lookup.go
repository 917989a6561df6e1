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
	CreatedAt   time.Time
	PublishedAt time.Time // zero: never
	FinishedAt  time.Time // zero: not yet
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

func lookup(ctx context.Context, c conn, where string, args ...any) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var (
		r                               Record
		due, created, published, finish int64
	)
	err := c.QueryRowContext(ctx, `SELECT id, topic, COALESCE(message_key, ''), state, generation, attempts, publishes, repairs, untracked,
		COALESCE(last_error, ''), `+micros1970("due_at")+`, `+micros1970("created_at")+`,
		`+micros1970("published_at")+`, COALESCE(`+micros1970("finished_at")+`, -1)
		FROM outbox_messages WHERE `+where, args...).Scan(
		&r.ID, &r.Topic, &r.Key, &r.State, &r.Generation, &r.Attempts, &r.Publishes, &r.Repairs, &r.Untracked,
		&r.LastError, &due, &created, &published, &finish)
	if errors.Is(err, sql.ErrNoRows) {
		return Record{}, ErrNoMessage
	}
	if err != nil {
		return Record{}, fmt.Errorf("look up message: %w", err)
	}
	r.DueAt, r.CreatedAt = fromMicros(due), fromMicros(created)
	if published > 0 {
		r.PublishedAt = fromMicros(published)
	}
	if finish >= 0 {
		r.FinishedAt = fromMicros(finish)
	}
	return r, nil
}
