package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
)

// StoreConfig tunes a Store. The zero value is usable.
type StoreConfig struct {
	// MaxPayload is the largest payload that Enqueue takes, in bytes. Default DefaultMaxPayload, at most 8 MiB.
	MaxPayload int
	// Retention is how long done and canceled messages are kept. Default 7 days.
	Retention time.Duration
	// MaxAttempts is how many effects of a message may return an error before it is dead. Default 10.
	MaxAttempts int
	// Backoff is the pause before attempt n+1, after n effects (n >= 1) returned an error. Default: 1 s doubling to at
	// most 10 min.
	Backoff func(attempts int) time.Duration
	// Enqueuing is told of each message that is about to be written, with the context of the call, and returns the headers that it shall have:
	// its own, and what makes it part of a trace. They must be valid, see Message.Headers. Done is called with the id, or the error, when it was
	// written; whether the transaction commits, nobody knows then. Nil: a message has its own headers.
	Enqueuing func(ctx context.Context, m Message) (headers map[string]string, done func(id int64, err error))
	// Observer is told what happens. Its functions must be fast and safe for concurrent use.
	Observer Observer
}

// Store is the ledger of messages in one database. It is safe for concurrent use.
type Store struct {
	db    *gorm.DB
	sql   *sql.DB
	cfg   StoreConfig
	clock clock

	overran atomic.Int64 // effects that were given up and have not returned
	streak  atomic.Int64 // deliveries in a row whose rows were locked
	crowded atomic.Int64 // until when deliveries ask whether their rows are locked before they wait; nanoseconds since 1970

	mu sync.Mutex
	id string // of the ledger; empty: not read yet
}

// NewStore returns the ledger kept in db, which must be opened on MySQL 8.0+ or MariaDB 10.6+ and hold the tables of
// Migrations. It does no I/O.
func NewStore(db *gorm.DB, cfg StoreConfig) (*Store, error) {
	if db == nil {
		return nil, errors.New("outbox: no database handle")
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("outbox: take the connection pool: %w", err)
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if cfg.Retention == 0 {
		cfg.Retention = 7 * 24 * time.Hour
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 10
	}
	if cfg.Backoff == nil {
		cfg.Backoff = func(attempts int) time.Duration { return doubling(time.Second, 10*time.Minute, attempts) }
	}
	switch {
	case cfg.MaxPayload < 0 || cfg.MaxPayload > maxPayloadLimit:
		return nil, fmt.Errorf("outbox: MaxPayload is %d, not in 1 to %d", cfg.MaxPayload, maxPayloadLimit)
	case cfg.Retention < 0:
		return nil, fmt.Errorf("outbox: Retention is %v, below zero", cfg.Retention)
	case cfg.MaxAttempts < 0:
		return nil, fmt.Errorf("outbox: MaxAttempts is %d, below zero", cfg.MaxAttempts)
	}
	return &Store{db: db, sql: pool, cfg: cfg}, nil
}

// StoreID returns the ledger's id. It is read from the database once.
func (s *Store) StoreID(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" {
		return s.id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := s.sql.QueryRowContext(ctx, "SELECT store_id FROM outbox_meta WHERE id = 1").Scan(&s.id); err != nil {
		return "", fmt.Errorf("outbox: read store id: %w", err)
	}
	return s.id, nil
}

// statementTimeout bounds every statement that the ledger sends on its own account.
const statementTimeout = 15 * time.Second

// Now returns the database's time, estimated from the newest readings of its clock; it asks the database when there is
// none from the last minute. The estimate is behind the true value by no more than one round trip, never ahead of it
// while both clocks run evenly.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if now, ok := s.clock.now(time.Now()); ok {
		return now, nil
	}
	read, err := s.readClock(ctx)
	if err != nil {
		return time.Time{}, err
	}
	got := time.Now()
	s.clock.observe(got, read)
	now, _ := s.clock.now(got)
	return now, nil
}

// readClock asks the database for its time: what was written before has no later one.
func (s *Store) readClock(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var micros int64
	if err := s.sql.QueryRowContext(ctx, "SELECT "+micros1970("UTC_TIMESTAMP(6)")).Scan(&micros); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return fromMicros(micros), nil
}

// inTx runs fn in a transaction of READ COMMITTED and commits if it returns nil.
func (s *Store) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.sql.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // also when fn panics; a no-op after Commit
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// doubling returns first * 2^(n-1), at most limit, for n >= 1.
func doubling(first, limit time.Duration, n int) time.Duration {
	d := first
	for range n - 1 {
		if d *= 2; d >= limit {
			return limit
		}
	}
	return min(d, limit)
}
