package chaos_test

import (
	"database/sql"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/chaos"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

// healthy is a database in which every promise was kept: order-1 was closed by time, order-2 was paid, order-3 was canceled by its
// user and paid too late, and the client of order-4 got no answer, and there is no such order.
func healthy(t *testing.T) (*sql.DB, *chaos.Ledger) {
	t.Helper()
	dsn := devtest.Database(t)
	migrate := exec.CommandContext(t.Context(), program(t), "migrate")
	migrate.Env = append(os.Environ(), "MYSQL_DSN="+dsn)
	out, err := migrate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	db := devtest.Open(t, dsn)
	for _, statement := range []string{
		`INSERT INTO products (sku, name, available, reserved, sold) VALUES ('A', 'A', 98, 0, 2)`,
		`INSERT INTO orders (no, user_id, kind, status, close_reason, total, due_at, created_at, paid_at, closed_at) VALUES
			('order-1', 'user-1', 'flash', 'closed', 'timeout', 200, '2026-01-01 00:01:00', '2026-01-01', NULL, '2026-01-01 00:01:00.1'),
			('order-2', 'user-2', 'normal', 'paid', NULL, 200, '2026-01-01 00:02:00', '2026-01-01', '2026-01-01 00:01:59', NULL),
			('order-3', 'user-3', 'normal', 'closed', 'user', 200, '2026-01-01 00:02:00', '2026-01-01', NULL, '2026-01-01 00:00:30')`,
		`INSERT INTO order_items (order_no, item, sku, quantity, price) VALUES
			('order-1', 1, 'A', 2, 100), ('order-2', 1, 'A', 2, 100), ('order-3', 1, 'A', 2, 100)`,
		`INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at) VALUES
			('A', NULL, NULL, 'adjust', 100, '2026-01-01'),
			('A', 'order-1', 1, 'reserve', 2, '2026-01-01'), ('A', 'order-1', 1, 'release', 2, '2026-01-01'),
			('A', 'order-2', 1, 'reserve', 2, '2026-01-01'), ('A', 'order-2', 1, 'sell', 2, '2026-01-01'),
			('A', 'order-3', 1, 'reserve', 2, '2026-01-01'), ('A', 'order-3', 1, 'release', 2, '2026-01-01')`,
		`INSERT INTO outbox_messages (id, shard, topic, message_key, generation, state, due_at, available_at, content_type, payload, created_at) VALUES
			(1, 0, 'order.expire', 'order-1', 2, 'done', '2026-01-01 00:01:00', '2026-01-08', '', '', '2026-01-01'),
			(2, 0, 'order.expire', 'order-2', 1, 'canceled', '2026-01-01 00:02:00', '2026-01-08', '', '', '2026-01-01'),
			(3, 0, 'order.expire', 'order-3', 1, 'canceled', '2026-01-01 00:02:00', '2026-01-08', '', '', '2026-01-01')`,
		`INSERT INTO effects (message_id, generation, effected_at) VALUES (1, 2, '2026-01-01 00:01:00.1')`,
		`INSERT INTO payments (payment_id, order_no, amount, received_at) VALUES
			('pay-2', 'order-2', 200, '2026-01-01'), ('pay-3', 'order-3', 200, '2026-01-01')`,
		`INSERT INTO refunds (payment_id, order_no, amount, recorded_at) VALUES ('pay-3', 'order-3', 200, '2026-01-01')`,
	} {
		execute(t, db, statement)
	}
	l := chaos.NewLedger()
	l.Stocked("A", 100)
	due := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	l.Add(&chaos.Order{User: "user-1", Kind: "flash", No: "order-1", Total: 200, Due: due})
	l.Add(&chaos.Order{User: "user-2", Kind: "normal", No: "order-2", Total: 200, Due: due, Paid: []string{"pay-2"}})
	l.Add(&chaos.Order{User: "user-3", Kind: "normal", No: "order-3", Total: 200, Due: due, Paid: []string{"pay-3"}, Canceled: true})
	l.Add(&chaos.Order{User: "user-4", Kind: "normal"})
	return db, l
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err, statement)
}

func rules(found []chaos.Violation) (rules []chaos.Rule) {
	for _, v := range found {
		rules = append(rules, v.Rule)
	}
	return rules
}

func TestCheck_FindsNothingWhereEveryPromiseWasKept(t *testing.T) {
	t.Parallel()
	db, l := healthy(t)
	found, counts, err := chaos.Check(t.Context(), db, l)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Equal(t, chaos.Found{Paid: 1, Closed: 2, Refunds: 1, Done: 1, Canceled: 2}, counts)
}

// TestCheck_NamesPlantedViolations breaks one promise at a time and asks for exactly the rules that this breaks.
func TestCheck_NamesPlantedViolations(t *testing.T) {
	t.Parallel()
	ledger := func(change func(l *chaos.Ledger)) func(*testing.T, *sql.DB, *chaos.Ledger) {
		return func(_ *testing.T, _ *sql.DB, l *chaos.Ledger) { change(l) }
	}
	sqls := func(statements ...string) func(*testing.T, *sql.DB, *chaos.Ledger) {
		return func(t *testing.T, db *sql.DB, _ *chaos.Ledger) {
			t.Helper()
			for _, statement := range statements {
				execute(t, db, statement)
			}
		}
	}
	for name, c := range map[string]struct {
		plant func(*testing.T, *sql.DB, *chaos.Ledger)
		rules []chaos.Rule
	}{
		"message lost": {
			sqls(`UPDATE outbox_messages SET state = 'published' WHERE id = 2`),
			[]chaos.Rule{chaos.NothingLost},
		},
		"message and order lost": {
			sqls(`UPDATE outbox_messages SET state = 'published' WHERE id = 1`, `DELETE FROM effects`,
				`UPDATE orders SET status = 'pending', close_reason = NULL, closed_at = NULL WHERE no = 'order-1'`,
				`UPDATE products SET available = 96, reserved = 2`),
			[]chaos.Rule{chaos.NothingLost, chaos.OrdersEnd},
		},
		"message dead without a reason": {
			sqls(`UPDATE outbox_messages SET state = 'dead' WHERE id = 2`),
			[]chaos.Rule{chaos.NothingLost},
		},
		"message never written": {
			sqls(`DELETE FROM outbox_messages WHERE id = 2`),
			[]chaos.Rule{chaos.OrderHasOne},
		},
		"message of another order": {
			sqls(`UPDATE outbox_messages SET message_key = 'ORDER-2' WHERE id = 2`),
			[]chaos.Rule{chaos.OrderHasOne},
		},
		"effect twice": {
			sqls(`INSERT INTO effects (message_id, generation, effected_at) VALUES (1, 2, '2026-01-01 00:01:01')`),
			[]chaos.Rule{chaos.EffectOnce},
		},
		"effect missing": {
			sqls(`DELETE FROM effects`),
			[]chaos.Rule{chaos.EffectOnce},
		},
		"effect of a reminder missing": {
			sqls(`UPDATE outbox_messages SET state = 'done', topic = 'order.remind' WHERE id = 2`,
				`INSERT INTO outbox_messages (id, shard, topic, message_key, state, due_at, available_at, content_type, payload, created_at) VALUES
					(4, 0, 'order.expire', 'order-2', 'canceled', '2026-01-01 00:02:00', '2026-01-08', '', '', '2026-01-01')`),
			[]chaos.Rule{chaos.EffectOnce},
		},
		"effect of a canceled message": {
			sqls(`INSERT INTO effects (message_id, generation, effected_at) VALUES (2, 1, '2026-01-01 00:02:01')`),
			[]chaos.Rule{chaos.Withdrawn},
		},
		"effect of an old generation": {
			sqls(`UPDATE effects SET generation = 1`),
			[]chaos.Rule{chaos.Withdrawn},
		},
		"effect early": {
			sqls(`UPDATE effects SET effected_at = '2026-01-01 00:00:59.999999'`),
			[]chaos.Rule{chaos.NeverEarly},
		},
		"order closed early": {
			sqls(`UPDATE orders SET closed_at = '2026-01-01 00:00:59.999999' WHERE no = 'order-1'`),
			[]chaos.Rule{chaos.NeverEarly, chaos.AnswersHold},
		},
		"order paid and closed": {
			sqls(`UPDATE orders SET closed_at = '2026-01-01 00:03:00' WHERE no = 'order-2'`),
			[]chaos.Rule{chaos.NotPaidAndShut},
		},
		"stock of a paid order given back": {
			sqls(`INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at) VALUES ('A', 'order-2', 1, 'release', 2, '2026-01-01')`),
			[]chaos.Rule{chaos.NotPaidAndShut},
		},
		"units made": {
			sqls(`UPDATE products SET available = 99`),
			[]chaos.Rule{chaos.StockConserved},
		},
		"units that no order holds": {
			sqls(`UPDATE products SET available = 97, reserved = 1`),
			[]chaos.Rule{chaos.StockConserved},
		},
		"product lost": {
			sqls(`DELETE FROM products`),
			[]chaos.Rule{chaos.StockConserved},
		},
		"refund lost": {
			sqls(`DELETE FROM refunds`),
			[]chaos.Rule{chaos.MoneyConserved, chaos.AnswersHold},
		},
		"payment lost": {
			sqls(`DELETE FROM payments WHERE payment_id = 'pay-2'`),
			[]chaos.Rule{chaos.MoneyConserved, chaos.AnswersHold},
		},
		"confirmed order lost": {
			ledger(func(l *chaos.Ledger) { l.Add(&chaos.Order{User: "user-5", Kind: "flash", No: "order-5"}) }),
			[]chaos.Rule{chaos.AnswersHold},
		},
		"order that nobody asked for": {
			sqls(`UPDATE orders SET user_id = 'user-9' WHERE no = 'order-3'`),
			[]chaos.Rule{chaos.AnswersHold, chaos.AnswersHold},
		},
		"order placed twice": {
			sqls(`UPDATE orders SET user_id = 'user-2' WHERE no = 'order-3'`),
			[]chaos.Rule{chaos.AnswersHold, chaos.AnswersHold},
		},
		"confirmed cancel forgotten": {
			ledger(func(l *chaos.Ledger) { l.Each(func(o *chaos.Order) { o.Canceled = o.Canceled || o.No == "order-2" }) }),
			[]chaos.Rule{chaos.AnswersHold},
		},
		"confirmed reschedule forgotten": {
			ledger(func(l *chaos.Ledger) {
				l.Each(func(o *chaos.Order) {
					if o.No == "order-2" {
						o.Due = time.Date(2026, 1, 1, 0, 2, 1, 0, time.UTC)
					}
				})
			}),
			[]chaos.Rule{chaos.AnswersHold},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, l := healthy(t)
			c.plant(t, db, l)
			found, _, err := chaos.Check(t.Context(), db, l)
			require.NoError(t, err)
			require.Equal(t, c.rules, rules(found), "%v", found)
		})
	}
}
