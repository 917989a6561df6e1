package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// The statements of the transaction that places an order of one item, as ordering and outbox have them; a test compares.
const (
	selectAvailable = `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now_us, sku, available
		FROM products WHERE sku IN (?)`
	insertMessage = `INSERT INTO outbox_messages
		(shard, topic, message_key, live_key, untracked, content_type, headers, payload, created_at, due_at, available_at) VALUES
		(?, ?, ?, message_key, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?, GREATEST(due_at, created_at))`
	insertPlaced    = `INSERT INTO orders (no, user_id, kind, total, message_id, due_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`
	insertItem      = `INSERT INTO order_items (order_no, item, sku, quantity, price) VALUES (?, ?, ?, ?, ?)`
	insertMovement  = `INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6))`
	updateAvailable = `UPDATE products SET available = available + ?, reserved = reserved + ?, sold = sold + ?
		WHERE sku = ? AND available + ? >= 0 AND reserved + ? >= 0`
)

// What an order of the benchmarks is.
const (
	products   = 1000
	plenty     = 1_000_000_000
	price      = 1999
	orderDue   = 30 * time.Minute // as the program's default for the kind normal
	remindedIn = 25 * time.Minute // as the program's default
)

func skuOf(i int) string { return fmt.Sprintf("product-%d", i) }

func userOf(i int) string { return fmt.Sprintf("user-%d", i%1000) }

// numberOf is as long as an order number, and rises as they do.
func numberOf(i int) string { return strings.ReplaceAll(keyOf(i), "-", "") }

func fillShelves(ctx context.Context, db *sql.DB, n int) error {
	for i := range n {
		if _, err := db.ExecContext(ctx, `INSERT INTO products (sku, name, available) VALUES (?, 'Product', ?)`, skuOf(i), plenty); err != nil {
			return fmt.Errorf("fill the shelves: %w", err)
		}
	}
	return nil
}

// orderMessage is a message about an order.
func orderMessage(topic, no string, due time.Time) outbox.Message {
	return outbox.Message{Topic: topic, Key: no, DueAt: due, ContentType: model.PayloadType, Payload: model.OrderPayload{No: no}.Encode()}
}

// bareOrder places an order of one unit with database/sql alone. What enqueue writes has the id that it returns.
func bareOrder(ctx context.Context, db *sql.DB, sku string, i int, enqueue func(tx *sql.Tx, no string, due time.Time) (int64, error)) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := placeBare(ctx, tx, sku, i, enqueue); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func placeBare(ctx context.Context, tx *sql.Tx, sku string, i int, enqueue func(tx *sql.Tx, no string, due time.Time) (int64, error)) error {
	var (
		micros, available int64
		found             string
	)
	if err := tx.QueryRowContext(ctx, selectAvailable, sku).Scan(&micros, &found, &available); err != nil {
		return err
	}
	now := time.UnixMicro(micros).UTC()
	no, due := numberOf(i), now.Add(orderDue)
	id, err := enqueue(tx, no, due)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		text string
		args []any
	}{
		{insertPlaced, []any{no, userOf(i), "normal", price, id, sqlTime(due), sqlTime(now)}},
		{insertItem, []any{no, 0, sku, 1, price}},
		{insertMovement, []any{sku, no, 0, "reserve", 1}},
		{updateAvailable, []any{-1, 1, 0, sku, -1, 1}},
	} {
		if _, err := tx.ExecContext(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func sqlTime(t time.Time) string { return t.Format("2006-01-02 15:04:05.000000") }
