package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func TestBenchEnqueue_MeasuresOnTheRealServices(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, services, options) (line, error){
		"enqueue": benchEnqueue(3), "enqueue-order": benchEnqueueOrder(3),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := services{dsn: devtest.Database(t)}
			l, err := run(t.Context(), s, small())
			require.NoError(t, err)
			require.Equal(t, name, l.Bench)
			require.Contains(t, l.Variant, "writers=3")
			require.Equal(t, 2, l.Rounds)
			require.Positive(t, l.P50Ratio)
			require.Positive(t, l.P99Ratio)
			// A warm-up of four, and two rounds of forty with and forty without.
			require.Equal(t, 84, count(t, s.dsn, "outbox_messages"))
			require.Equal(t, 164, count(t, s.dsn, "orders"))
		})
	}
}

func TestBenchPlace_MeasuresOnTheRealServices(t *testing.T) {
	t.Parallel()
	for name, skus := range map[string]int{"many": 50, "hot": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := services{dsn: devtest.Database(t)}
			l, err := benchPlace(name, skus)(t.Context(), s, small())
			require.NoError(t, err)
			require.Equal(t, "place", l.Bench)
			require.Contains(t, l.Variant, name)
			require.Equal(t, 2, l.Rounds)
			require.Positive(t, l.Min)
			require.Positive(t, *l.Ratio)
			// Sixteen orders a turn: a turn each to warm up, and two rounds of ten.
			const orders = 16 * 2 * 21
			require.Equal(t, orders, count(t, s.dsn, "orders"))
			require.Equal(t, 2*orders, count(t, s.dsn, "outbox_messages"))
			require.Equal(t, skus, count(t, s.dsn, "products WHERE reserved >= 13"))
		})
	}
}

func TestPlace_RefusesWhatIsNoOrder(t *testing.T) {
	t.Parallel()
	led, store, err := openShop(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, led.close()) }()
	web, err := startAPI(t.Context(), led, store)
	require.NoError(t, err)
	defer func() { require.NoError(t, web.end()) }()
	err = web.place(t.Context(), 1, func(int) (string, string) { return "no-such-product", "ann" })
	require.ErrorContains(t, err, "400")
}

// What is compared with the API must be what it sends.
func TestBareOrder_SendsWhatTheServiceSends(t *testing.T) {
	t.Parallel()
	led, _, err := openShop(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, led.close()) }()
	require.NoError(t, fillShelves(t.Context(), led.sql, 1))
	var sent []string
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: recorder{led.sql, &sent}, SkipInitializeWithVersion: true}), led.db.Config)
	require.NoError(t, err)
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	require.NoError(t, err)
	orders, err := ordering.New(db, store, ordering.Config{RemindBefore: orderDue - remindedIn})
	require.NoError(t, err)
	_, err = orders.Place(t.Context(), model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{{SKU: skuOf(0), Quantity: 1, Price: price}}}, "")
	require.NoError(t, err)
	want := []string{selectAvailable, insertMessage, insertMessage, insertPlaced, insertItem, insertMovement, updateAvailable}
	for i := range want {
		want[i] = strings.Join(strings.Fields(want[i]), " ")
	}
	require.Equal(t, want, sent)

	require.NoError(t, bareOrder(t.Context(), led.sql, skuOf(0), 1, enqueueBare(t.Context())))
	rows := func(query string) (all []string) {
		require.NoError(t, led.db.Raw(query).Scan(&all).Error)
		return all
	}
	for _, query := range []string{ // twice the same but for numbers, times and the user
		`SELECT CONCAT_WS(' ', kind, status, total, version, message_id > 0, TIMESTAMPDIFF(SECOND, created_at, due_at)) FROM orders`,
		`SELECT CONCAT_WS(' ', item, sku, quantity, price) FROM order_items`,
		`SELECT CONCAT_WS(' ', sku, item, direction, quantity) FROM stock_movements`,
		`SELECT CONCAT_WS(' ', m.state, m.content_type, LENGTH(m.payload), m.headers IS NULL, ABS(TIMESTAMPDIFF(SECOND, m.due_at, o.due_at)) <= 1)
			FROM outbox_messages m JOIN orders o ON o.message_id = m.id AND o.no = m.live_key`,
		`SELECT CONCAT_WS(' ', m.state, m.content_type, LENGTH(m.payload), m.topic, TIMESTAMPDIFF(SECOND, m.due_at, o.due_at))
			FROM outbox_messages m JOIN orders o ON o.message_id <> m.id AND o.no = m.live_key`,
	} {
		all := rows(query)
		require.Len(t, all, 2, query)
		require.Equal(t, all[0], all[1], query)
	}
	require.Equal(t, []string{"999999998 2 0"}, rows(`SELECT CONCAT_WS(' ', available, reserved, sold) FROM products`))
}

// recorder is a pool that notes the statements of its transactions.
type recorder struct {
	*sql.DB
	sent *[]string
}

func (r recorder) GetDBConn() (*sql.DB, error) { return r.DB, nil } //nolint:unparam // gorm's interface

func (r recorder) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := r.DB.BeginTx(ctx, opts)
	return &recorded{tx, r.sent}, err
}

type recorded struct {
	*sql.Tx
	sent *[]string
}

func (r *recorded) note(query string) {
	*r.sent = append(*r.sent, strings.Join(strings.Fields(query), " "))
}

func (r *recorded) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	r.note(query)
	return r.Tx.ExecContext(ctx, query, args...)
}

func (r *recorded) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	r.note(query)
	return r.Tx.QueryContext(ctx, query, args...)
}

func count(t *testing.T, dsn, table string) (n int) {
	t.Helper()
	require.NoError(t, devtest.Open(t, dsn).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}
