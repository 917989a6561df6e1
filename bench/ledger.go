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
	_, err := l.sql.ExecContext(ctx, "TRUNCATE TABLE outbox_messages")
	return err
}

// fill adds n scheduled rows as Enqueue writes them, spread over the shards, due one step after the other from the given time on.
func (l *ledger) fill(ctx context.Context, n int, due, step time.Duration) error {
	const batch = 1000
	first, err := l.count(ctx, "TRUE")
	if err != nil {
		return err
	}
	body := payload()
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
			args = append(args, i%16, topic, key, key, outbox.DefaultContentType, body, at, at)
		}
		if _, err := l.sql.ExecContext(ctx, q.String(), args...); err != nil {
			return fmt.Errorf("fill the ledger: %w", err)
		}
	}
	return nil
}

func (l *ledger) count(ctx context.Context, where string, args ...any) (n int, err error) {
	err = l.sql.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_messages WHERE "+where, args...).Scan(&n)
	return n, err
}
