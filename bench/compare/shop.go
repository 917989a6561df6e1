package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// schema is the shop that every contender works for. The journal says what has happened to an order; it has no unique key, so that what is done
// twice is seen twice.
func schema() []string {
	return []string{
		`CREATE TABLE orders (
			no         VARCHAR(40) NOT NULL PRIMARY KEY,
			phase      VARCHAR(40) NOT NULL,
			kind       VARCHAR(10) NOT NULL,
			status     VARCHAR(10) NOT NULL,
			sku        INT         NOT NULL,
			quantity   INT         NOT NULL,
			created_at DATETIME(6) NOT NULL,
			due_at     DATETIME(6) NOT NULL
		) ENGINE=InnoDB`,
		`CREATE TABLE products (
			sku       INT    NOT NULL PRIMARY KEY,
			available BIGINT NOT NULL,
			reserved  BIGINT NOT NULL,
			sold      BIGINT NOT NULL
		) ENGINE=InnoDB`,
		`CREATE TABLE journal (
			id       BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
			order_no VARCHAR(40) NOT NULL,
			what     VARCHAR(10) NOT NULL,
			at       DATETIME(6) NOT NULL,
			KEY by_order (order_no)
		) ENGINE=InnoDB`,
	}
}

const (
	products = 200
	stock    = 1_000_000 // of each
)

// An order is what a buyer sends.
type order struct {
	No       string        `json:"no"`
	Phase    string        `json:"phase"`
	Kind     string        `json:"kind"`
	SKU      int           `json:"sku"`
	Quantity int           `json:"quantity"`
	Timeout  time.Duration `json:"timeout"` // of its kind, as it is set when it is placed
}

// shop is the database of a contender, and a pen of the comparison's own for what the contender's user is not to be counted for.
type shop struct{ db, pen *sql.DB }

// in runs do in a transaction.
func (s shop) in(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// place writes a pending order and reserves its stock. The database says when it is due.
func (s shop) place(ctx context.Context, tx conn, o order) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (no, phase, kind, status, sku, quantity, created_at, due_at)
		VALUES (?, ?, ?, 'pending', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)`,
		o.No, o.Phase, o.Kind, o.SKU, o.Quantity, o.Timeout.Microseconds()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE products SET available = available - ?, reserved = reserved + ? WHERE sku = ?`, o.Quantity, o.Quantity, o.SKU); err != nil {
		return err
	}
	return note(ctx, tx, o.No, "place")
}

// pay marks a pending order as paid, and tells whether it has.
func (s shop) pay(ctx context.Context, tx conn, no string) (bool, error) {
	return s.end(ctx, tx, no, "paid", `UPDATE products AS p JOIN orders AS o ON o.sku = p.sku SET p.reserved = p.reserved - o.quantity, p.sold = p.sold + o.quantity WHERE o.no = ?`)
}

// close closes an order that is still pending and gives its stock back. Whoever is asked twice does it once: the status is the guard. That it was asked
// in vain is noted, also when tx is rolled back: a shop without the guard would have given the stock back then.
func (s shop) close(ctx context.Context, tx conn, no string) error {
	if closed, err := s.tryClose(ctx, tx, no); err != nil || closed {
		return err
	}
	return note(ctx, s.pen, no, "in vain")
}

func (s shop) tryClose(ctx context.Context, tx conn, no string) (bool, error) {
	return s.end(ctx, tx, no, "closed", `UPDATE products AS p JOIN orders AS o ON o.sku = p.sku SET p.reserved = p.reserved - o.quantity, p.available = p.available + o.quantity WHERE o.no = ?`)
}

func (s shop) end(ctx context.Context, tx conn, no, status, move string) (bool, error) {
	res, err := tx.ExecContext(ctx, `UPDATE orders SET status = ? WHERE no = ? AND status = 'pending'`, status, no)
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, move, no); err != nil {
		return false, err
	}
	return true, note(ctx, tx, no, status)
}

// closeOne is close in a transaction of its own, tried again when it has met another one.
func (s shop) closeOne(ctx context.Context, no string) error {
	const tries = 5
	var err error
	for i := range tries {
		if err = s.in(ctx, func(tx *sql.Tx) error {
			if i > 0 { // the first try may have been committed: that it is asked for again is no fault of the contender's
				_, err := s.tryClose(ctx, tx, no)
				return err
			}
			return s.close(ctx, tx, no)
		}); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return fmt.Errorf("close order %s: %w", no, err)
}

func note(ctx context.Context, tx conn, no, what string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO journal (order_no, what, at) VALUES (?, ?, UTC_TIMESTAMP(6))`, no, what)
	return err
}

// conn is a pool or a transaction.
type conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// texts reads the only column of all rows.
func texts(ctx context.Context, q conn, query string, args ...any) (all []string, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
