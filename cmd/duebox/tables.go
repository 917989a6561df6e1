package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/outbox"
)

// askTables returns nil if the database answers and has the tables, and api.ErrNoTables if it answers and has not.
func askTables(ctx context.Context, pool *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// The tables that migrations make last, of both sets; the others are made before.
	var n int
	err := pool.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox_audit) + EXISTS (SELECT 1 FROM idempotency_keys)`).Scan(&n)
	if outbox.LacksTable(err) {
		return api.ErrNoTables
	}
	return err
}

// warnOfTables logs that the tables are missing. The process goes on: it is not ready until somebody has migrated.
func warnOfTables(ctx context.Context, pool *sql.DB, log *slog.Logger) {
	if err := askTables(ctx, pool); errors.Is(err, api.ErrNoTables) {
		log.ErrorContext(ctx, "the database lacks tables: run duebox migrate")
	}
}
