package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/outbox"
)

// What a measured message looks like.
const (
	topic        = "order.expire"
	payloadBytes = 200
)

func payload() []byte { return []byte(strings.Repeat("p", payloadBytes)) }

// keyOf is as long as an order number.
func keyOf(i int) string { return fmt.Sprintf("0198a1b2-c3d4-7e5f-8a9b-%012d", i) }

// ledger is the outbox's tables, filled and read without the library.
type ledger struct {
	db  *gorm.DB
	sql *sql.DB
}

func openLedger(ctx context.Context, dsn string) (*ledger, error) {
	db, err := database.Open(ctx, dsn)
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	if err := database.Migrate(ctx, db, database.Set{Table: "goose_outbox", Files: outbox.Migrations}); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &ledger{db: db, sql: pool}, nil
}

func (l *ledger) close() error { return l.sql.Close() }

func (l *ledger) reset(ctx context.Context) error {
	return l.exec(ctx, "TRUNCATE TABLE outbox_messages")
}

// fill adds n scheduled rows as Enqueue writes them, spread over the shards, due one step after the other from the given time on.
func (l *ledger) fill(ctx context.Context, n int, due, step time.Duration) error {
	body := payload()
	return l.fillWith(ctx, n, due, step, func(string) []byte { return body })
}

// fillWith is fill with a payload of each key.
func (l *ledger) fillWith(ctx context.Context, n int, due, step time.Duration, payload func(key string) []byte) error {
	const batch = 1000
	first, err := l.last(ctx)
	if err != nil {
		return err
	}
	for done := 0; done < n; done += batch {
		var (
			q    strings.Builder
			args []any
		)
		q.WriteString(`INSERT INTO outbox_messages
			(shard, topic, message_key, live_key, content_type, payload, due_at, available_at, created_at) VALUES `)
		for i := done; i < min(done+batch, n); i++ {
			if i > done {
				q.WriteString(", ")
			}
			q.WriteString(`(?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
				UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6))`)
			key := []byte(keyOf(first + i))
			at := (due + time.Duration(i)*step).Microseconds()
			args = append(args, i%16, topic, key, key, outbox.DefaultContentType, payload(string(key)), at, at)
		}
		if _, err := l.sql.ExecContext(ctx, q.String(), args...); err != nil {
			return fmt.Errorf("fill the ledger: %w", err)
		}
	}
	return nil
}

func (l *ledger) exec(ctx context.Context, statement string) error {
	_, err := l.sql.ExecContext(ctx, statement)
	return err
}

// until waits until a query's only value is 1.
func (l *ledger) until(ctx context.Context, query string) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		var is int
		if err := l.sql.QueryRowContext(ctx, query).Scan(&is); err != nil || is == 1 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// copied is how many rows fillMany copies in a statement, a multiple of the number of shards.
const copied = 48_000

// fillMany adds rows as fill does, due from days ahead on. Those after the first are copies of these with keys and times of their own, which is several times as fast.
func (l *ledger) fillMany(ctx context.Context, n int, step time.Duration) error {
	first, err := l.last(ctx)
	if err != nil {
		return err
	}
	if err := l.fill(ctx, min(n, copied), farAway, step); err != nil {
		return err
	}
	return l.copyRows(ctx, rowsAfter{first, copied}, copied, n, step, scheduledCopy)
}

// What copies are: SQL for live_key, which may name the message's key as k, then for state and for finished_at.
const (
	scheduledCopy = "k, 'scheduled', NULL"
	doneCopy      = "NULL, 'done', UTC_TIMESTAMP(6)"
)

// rowsAfter are the n rows that follow an id, to be copied. They are numbered from 0.
type rowsAfter struct{ id, n int }

// copyRows adds the rows from the one with the number from up to the one with the number to, which is not among them, due one step after the
// other.
func (l *ledger) copyRows(ctx context.Context, of rowsAfter, from, to int, step time.Duration, what string) error {
	for ; from < to; from += of.n {
		later := (time.Duration(from) * step).Microseconds()
		//nolint:gosec // What it is put together from are constants.
		if _, err := l.sql.ExecContext(ctx, `INSERT INTO outbox_messages
				(shard, topic, content_type, payload, due_at, available_at, created_at, message_key, live_key, state, finished_at)
			SELECT shard, topic, content_type, payload, due_at, due_at, created_at, k, `+what+` FROM (
				SELECT shard, topic, content_type, payload, due_at + INTERVAL ? MICROSECOND AS due_at, created_at,
					CONCAT(LEFT(message_key, 24), LPAD(CAST(RIGHT(message_key, 12) AS UNSIGNED) + ?, 12, '0')) AS k
				FROM outbox_messages WHERE id > ? AND id <= ?) AS copies`,
			later, from, of.id, of.id+min(of.n, to-from)); err != nil {
			return fmt.Errorf("fill the ledger: %w", err)
		}
	}
	return nil
}

// last returns the greatest id, which is no less than the number of rows; 0 if there are none. What fill writes has keys from there on.
func (l *ledger) last(ctx context.Context) (id int, err error) {
	err = l.sql.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM outbox_messages").Scan(&id)
	return id, err
}

func (l *ledger) count(ctx context.Context, where string, args ...any) (n int, err error) {
	err = l.sql.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_messages WHERE "+where, args...).Scan(&n)
	return n, err
}
