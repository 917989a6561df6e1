package demo_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/demo"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

// books is a database in which all is well: o1 was paid, o2 closed at its due time and paid too late, both of 2 units of A
// of which there were 10 at the beginning.
type books struct{ *sql.DB }

func newBooks(t *testing.T) books {
	t.Helper()
	db, err := database.Open(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, database.Migrate(t.Context(), db,
		database.Set{Table: "goose_outbox", Files: outbox.Migrations},
		database.Set{Table: "goose_orders", Files: ordering.Migrations}))
	b := books{pool}
	b.exec(t, `INSERT INTO products (sku, name, available, reserved, sold) VALUES ('A', 'A', 8, 0, 2)`)
	b.exec(t, `INSERT INTO orders (no, user_id, kind, status, close_reason, total, due_at, created_at, paid_at, closed_at) VALUES
		('o1', 'u', 'normal', 'paid', NULL, 20, '2026-01-01 00:30:00', '2026-01-01', '2026-01-01 00:10:00', NULL),
		('o2', 'u', 'normal', 'closed', 'timeout', 20, '2026-01-01 00:30:00', '2026-01-01', NULL, '2026-01-01 00:30:00.000001')`)
	b.exec(t, `INSERT INTO order_items (order_no, item, sku, quantity, price) VALUES ('o1', 0, 'A', 2, 10), ('o2', 0, 'A', 2, 10)`)
	b.exec(t, `INSERT INTO payments (payment_id, order_no, amount, received_at) VALUES ('p1', 'o1', 20, '2026-01-01'), ('p2', 'o2', 20, '2026-01-02')`)
	b.exec(t, `INSERT INTO refunds (payment_id, order_no, amount, recorded_at) VALUES ('p2', 'o2', 20, '2026-01-02')`)
	b.exec(t, `INSERT INTO outbox_messages (id, shard, topic, message_key, state, due_at, available_at, content_type, payload, created_at, publishes) VALUES
		(1, 0, 'order.expire', 'o1', 'canceled', '2026-01-01 00:30:00', '2026-01-08', 'x', '', '2026-01-01', 1),
		(2, 0, 'order.expire', 'o2', 'done', '2026-01-01 00:30:00', '2026-01-08', 'x', '', '2026-01-01', 0),
		(3, 0, 'order.remind', 'o2', 'done', '2026-01-01 00:25:00', '2026-01-08', 'x', '', '2026-01-01', 0)`)
	b.exec(t, `INSERT INTO effects (message_id, generation, effected_at) VALUES
		(2, 1, '2026-01-01 00:30:00.000001'), (3, 1, '2026-01-01 00:25:00.000001')`)
	return b
}

func (b books) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := b.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

func (b books) check(t *testing.T) demo.Result {
	t.Helper()
	found, err := demo.Check(t.Context(), b.DB, map[string]int64{"A": 10}, []string{"o1", "o2"})
	require.NoError(t, err)
	require.NoError(t, found.CheckLate(t.Context(), b.DB, []string{"p2"}))
	return found.Result()
}

func TestCheck_FindsNothingWhereAllIsWell(t *testing.T) {
	t.Parallel()
	r := newBooks(t).check(t)
	require.Empty(t, r.Wrong())
	require.Equal(t, []int{2, 1, 1, 0, 1}, []int{r.Orders, r.Paid, r.Closed, r.Pending, r.Refunded})
	require.True(t, r.StockConserved)
}

// TestCheck_SeesEachFault breaks one thing at a time.
func TestCheck_SeesEachFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault string
		want  func(r demo.Result) bool
		says  string
	}{
		"lost": {
			`UPDATE orders SET status = 'pending', close_reason = NULL, closed_at = NULL WHERE no = 'o2'`,
			func(r demo.Result) bool { return r.Lost == 1 && r.Pending == 1 && r.Orders == 2 }, "1 orders were lost",
		},
		"pending": {
			`INSERT INTO orders (no, user_id, kind, total, due_at, created_at) VALUES ('o3', 'u', 'normal', 1, '2100-01-01', '2026-01-01')`,
			func(r demo.Result) bool { return r.Lost == 0 && r.Pending == 1 }, "1 orders are pending, not yet due",
		},
		"closed early": {
			`UPDATE orders SET closed_at = '2026-01-01 00:29:59.999999' WHERE no = 'o2'`,
			func(r demo.Result) bool { return r.Early == 1 }, "1 orders were closed, or reminded of, too soon",
		},
		"effect early": {
			`UPDATE effects SET effected_at = '2026-01-01 00:29:59.999999'`,
			func(r demo.Result) bool { return r.Early == 1 }, "1 orders were closed, or reminded of, too soon",
		},
		"reminder early": {
			`UPDATE effects SET effected_at = '2026-01-01 00:24:59.999999' WHERE message_id = 3`,
			func(r demo.Result) bool { return r.Early == 1 }, "1 orders were closed, or reminded of, too soon",
		},
		"reminder twice": {
			`INSERT INTO effects (message_id, generation, effected_at) VALUES (3, 1, '2026-01-01 00:25:01')`,
			func(r demo.Result) bool { return r.DuplicateEffects == 1 }, "1 effects happened twice",
		},
		"effect twice": {
			`INSERT INTO effects (message_id, generation, effected_at) VALUES (2, 1, '2026-01-01 00:30:01')`,
			func(r demo.Result) bool { return r.DuplicateEffects == 1 }, "1 effects happened twice",
		},
		"effect three times, in another generation": {
			`INSERT INTO effects (message_id, generation, effected_at) VALUES (2, 2, '2026-01-01 00:31'), (2, 3, '2026-01-01 00:31')`,
			func(r demo.Result) bool { return r.DuplicateEffects == 2 }, "2 effects happened twice",
		},
		"unit lost": {
			`UPDATE products SET available = 7`,
			func(r demo.Result) bool { return !r.StockConserved }, "the stock is not what it was",
		},
		"unit still reserved": {
			`UPDATE products SET available = 7, reserved = 1`,
			func(r demo.Result) bool { return !r.StockConserved }, "the stock is not what it was",
		},
		"unit sold without an order": {
			`UPDATE products SET available = 7, sold = 3`,
			func(r demo.Result) bool { return !r.StockConserved }, "the stock is not what it was",
		},
		"product gone": {
			`DELETE FROM products`,
			func(r demo.Result) bool { return !r.StockConserved }, "the stock is not what it was",
		},
		"paid without a payment": {
			`DELETE FROM payments WHERE payment_id = 'p1'`,
			func(r demo.Result) bool { return r.Paid == 1 }, "1 orders whose payments and refunds do not add up",
		},
		"not refunded": {
			`DELETE FROM refunds`,
			func(r demo.Result) bool { return r.Refunded == 0 }, "1 of 1 payments after closing were not refunded",
		},
		"accepted and gone": {
			`DELETE FROM orders WHERE no = 'o1'`,
			func(r demo.Result) bool { return r.Orders == 1 }, "1 accepted orders are not in the database",
		},
		"order from nowhere": {
			`UPDATE orders SET no = 'o3' WHERE no = 'o2'`,
			func(r demo.Result) bool { return r.Orders == 2 }, "1 orders in the database that nobody placed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			b.exec(t, c.fault)
			r := b.check(t)
			require.True(t, c.want(r), "%+v", r)
			require.Contains(t, r.Wrong(), firstWith(r.Wrong(), c.says), "%v does not say %q", r.Wrong(), c.says)
		})
	}
}

func TestCheck_CountsPublicationsBeyondTheFirst(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.exec(t, `UPDATE outbox_messages SET publishes = 3 WHERE id = 1`)
	r := b.check(t)
	require.Equal(t, 2, r.Republished)
	require.Empty(t, r.Wrong())
}
