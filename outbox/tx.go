package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"gorm.io/gorm"
)

// ErrNotTransaction says that a call was given a database handle that is not an open transaction.
var ErrNotTransaction = errors.New("outbox: the handle is not a transaction")

// conn is what *sql.Tx and gorm's handle of a transaction have in common.
type conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// execCount runs a statement and returns how many rows it changed.
func execCount(ctx context.Context, c conn, query string, args ...any) (int64, error) {
	res, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// errEnough ends a queryAll without error before the last row.
var errEnough = errors.New("outbox: enough rows")

// queryAll runs a query and returns its rows.
func queryAll[T any](ctx context.Context, c conn, scan func(rows *sql.Rows, row *T) error, query string, args ...any) ([]T, error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		var row T
		err := scan(rows, &row)
		if errors.Is(err, errEnough) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// queryIDs is queryAll for one whole number a row.
func queryIDs(ctx context.Context, c conn, query string, args ...any) ([]int64, error) {
	return queryAll(ctx, c, func(rows *sql.Rows, id *int64) error { return rows.Scan(id) }, query, args...)
}

// without returns the rows that are not among others, by their keys.
func without[T any](rows, others []T, key func(T) int64) (rest []T) {
	keys := make(map[int64]bool, len(others))
	for _, row := range others {
		keys[key(row)] = true
	}
	for _, row := range rows {
		if !keys[key(row)] {
			rest = append(rest, row)
		}
	}
	return rest
}

// fromGorm takes the transaction out of a gorm handle, as gorm itself tells one from a pool.
func fromGorm(tx *gorm.DB) (conn, error) {
	if tx == nil {
		return nil, ErrNotTransaction
	}
	if tx.Error != nil { // of the Begin that made it
		return nil, tx.Error
	}
	if tx.Statement == nil {
		return nil, ErrNotTransaction
	}
	if _, ok := tx.Statement.ConnPool.(gorm.TxCommitter); !ok {
		return nil, ErrNotTransaction
	}
	return tx.Statement.ConnPool, nil
}

// toGorm gives a transaction the face of a gorm handle with the settings of db.
func toGorm(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	g := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	g.Statement.ConnPool = tx
	return g
}

// SQLStore has the calls of a Store for transactions of database/sql.
type SQLStore struct{ s *Store }

// SQL returns the ledger's calls for callers that use database/sql instead of gorm.
func (s *Store) SQL() SQLStore { return SQLStore{s} }

// Enqueue is Store.Enqueue in a transaction of database/sql.
func (q SQLStore) Enqueue(ctx context.Context, tx *sql.Tx, m *Message) error {
	if tx == nil {
		return ErrNotTransaction
	}
	return q.s.enqueue(ctx, tx, m)
}

// Cancel is Store.Cancel in a transaction of database/sql.
func (q SQLStore) Cancel(ctx context.Context, tx *sql.Tx, topic, key string) error {
	if tx == nil {
		return ErrNotTransaction
	}
	return q.s.cancel(ctx, tx, topic, key)
}

// Reschedule is Store.Reschedule in a transaction of database/sql.
func (q SQLStore) Reschedule(ctx context.Context, tx *sql.Tx, topic, key string, due time.Time) error {
	if tx == nil {
		return ErrNotTransaction
	}
	return q.s.reschedule(ctx, tx, topic, key, due)
}

// Handle is Store.Handle with an effect that uses database/sql.
func (q SQLStore) Handle(ctx context.Context, d Delivery, effect func(tx *sql.Tx) error) (Outcome, error) {
	return q.s.handle(ctx, d, effect)
}

// HandleBatch is Store.HandleBatch with an effect that uses database/sql.
func (q SQLStore) HandleBatch(ctx context.Context, ds []Delivery, effect func(tx *sql.Tx, ds []Delivery) error) []Result {
	return q.s.handleBatch(ctx, ds, effect)
}
