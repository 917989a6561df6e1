package ordering_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
)

// hold runs a statement and keeps its locks until the transaction is rolled back.
func (s *shop) hold(statement string, args ...any) *sql.Tx {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	require.NoError(s.t, err)
	res, err := tx.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err)
	n, err := res.RowsAffected()
	require.NoError(s.t, err)
	require.Equal(s.t, int64(1), n)
	return tx
}

// waiting waits until somebody in this database waits in a statement that begins so.
func (s *shop) waiting(statement string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.number(`SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE ?`, statement+"%") > 0
	}, 30*time.Second, 5*time.Millisecond)
}

// free makes sure that a row is not locked: a write to it goes through at once.
func (s *shop) free(statement string, args ...any) {
	s.t.Helper()
	conn, err := s.db.Conn(s.t.Context())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close()) }()
	_, err = conn.ExecContext(s.t.Context(), "SET SESSION innodb_lock_wait_timeout = 1")
	require.NoError(s.t, err)
	_, err = conn.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err, statement)
	_, err = conn.ExecContext(s.t.Context(), "SET SESSION innodb_lock_wait_timeout = 50")
	require.NoError(s.t, err)
}

// Who waits for a product by an earlier SKU must not hold one by a later SKU, in whatever order the items are listed.
func TestLocks_ProductsAreTakenBySKU(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 10)
	s.stock("b", 10)
	d := model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{{SKU: "b", Quantity: 1}, {SKU: "a", Quantity: 1}}}
	first := s.place(d)
	second := s.place(d)
	for name, call := range map[string]func(ctx context.Context) error{
		"place": func(ctx context.Context) error { _, err := s.Place(ctx, d, ""); return err },
		"pay": func(ctx context.Context) error {
			_, err := s.Pay(ctx, first.No, model.Payment{ID: "p", Amount: 0})
			return err
		},
		"cancel": func(ctx context.Context) error { _, err := s.Cancel(ctx, second.No); return err },
	} {
		held := s.hold(`UPDATE products SET name = 'held' WHERE sku = 'a'`)
		done := make(chan error, 1)
		go func() { done <- call(t.Context()) }()
		s.waiting("UPDATE products SET available")
		s.free(`UPDATE products SET name = CONCAT(name, '.') WHERE sku = 'b'`)
		require.NoError(t, held.Rollback())
		require.NoError(t, <-done, name)
	}
	s.requireConserved()
}

// Who waits for a message must not hold its order, nor who waits for an order its products.
func TestLocks_MessageThenOrderThenProducts(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 10)
	pay := func(ctx context.Context, no string) error {
		_, err := s.Pay(ctx, no, model.Payment{ID: "p-" + no, Amount: 250})
		return err
	}
	cancel := func(ctx context.Context, no string) error { _, err := s.Cancel(ctx, no); return err }
	extend := func(ctx context.Context, no string) error {
		_, err := s.Extend(ctx, no, time.Now().Add(time.Hour))
		return err
	}
	for _, call := range []func(ctx context.Context, no string) error{pay, cancel, extend} {
		o := s.place(draft("a", 1))
		held := s.hold(`UPDATE outbox_messages SET held = TRUE WHERE message_key = ? AND id > 0`, []byte(o.No))
		done := make(chan error, 1)
		go func() { done <- call(t.Context(), o.No) }()
		s.waiting("UPDATE outbox_messages SET")
		s.free(`UPDATE orders SET version = version + 1 WHERE no = ?`, o.No)
		s.free(`UPDATE products SET name = CONCAT(name, '.') WHERE sku = 'a'`)
		require.NoError(t, held.Rollback())
		require.NoError(t, <-done)

		o = s.place(draft("a", 1))
		held = s.hold(`UPDATE orders SET version = version + 1 WHERE no = ?`, o.No)
		go func() { done <- call(t.Context(), o.No) }()
		s.waiting("UPDATE orders SET")
		s.free(`UPDATE products SET name = CONCAT(name, '.') WHERE sku = 'a'`)
		require.NoError(t, held.Rollback())
		require.NoError(t, <-done)
	}
	s.requireConserved()
}
