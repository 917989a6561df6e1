package ordering_test

import (
	"context"
	"database/sql"
	"flag"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func TestMain(m *testing.M) {
	// Each check of the property test is some hundred transactions; flags given by hand still win.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// shop is a service on a database of the test's own.
type shop struct {
	*ordering.Service
	t     *testing.T
	gorm  *gorm.DB
	db    *sql.DB
	store *outbox.Store
}

func newShop(t *testing.T, cfg ordering.Config) *shop {
	t.Helper()
	return openShop(t, devtest.Database(t), cfg)
}

func openShop(t *testing.T, dsn string, cfg ordering.Config) *shop {
	t.Helper()
	g, err := database.Open(t.Context(), dsn)
	require.NoError(t, err)
	db, err := g.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	err = database.Migrate(t.Context(), g,
		database.Set{Table: "outbox_schema", Files: outbox.Migrations},
		database.Set{Table: "ordering_schema", Files: ordering.Migrations})
	require.NoError(t, err)
	store, err := outbox.NewStore(g, outbox.StoreConfig{})
	require.NoError(t, err)
	service, err := ordering.New(g, store, cfg)
	require.NoError(t, err)
	return &shop{Service: service, t: t, gorm: g, db: db, store: store}
}

// stock sets what is available of a product.
func (s *shop) stock(sku string, units int64) {
	s.t.Helper()
	_, err := s.SetStock(s.t.Context(), model.Stocking{SKU: sku, Name: "Product " + sku, Stock: units})
	require.NoError(s.t, err)
}

// draft is a valid draft of one item.
func draft(sku string, quantity int64) model.Draft {
	return model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{{SKU: sku, Quantity: quantity, Price: 250}}}
}

func (s *shop) place(d model.Draft) model.Order {
	s.t.Helper()
	o, err := s.Place(s.t.Context(), d, "")
	require.NoError(s.t, err)
	return o
}

// comeDue moves every message and order into the past, as if their time had come.
func (s *shop) comeDue() {
	s.t.Helper()
	s.exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE state = 'scheduled'`)
	s.exec(`UPDATE orders SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE status = 'pending'`)
}

// delivery is what the broker would bring for the order's message, whatever has become of the message.
func (s *shop) delivery(no string) outbox.Delivery {
	s.t.Helper()
	return s.deliveryOf(model.TopicExpire, no)
}

// deliveryOf is the same for the latest message of a topic.
func (s *shop) deliveryOf(topic, no string) outbox.Delivery {
	s.t.Helper()
	store, err := s.store.StoreID(s.t.Context())
	require.NoError(s.t, err)
	d := outbox.Delivery{Store: store, Topic: topic, Key: no}
	err = s.db.QueryRowContext(s.t.Context(), `SELECT id, generation, attempts, content_type, payload FROM outbox_messages
		WHERE topic = ? AND message_key = ? ORDER BY id DESC LIMIT 1`, []byte(d.Topic), []byte(no)).
		Scan(&d.ID, &d.Generation, &d.Attempt, &d.ContentType, &d.Payload)
	require.NoError(s.t, err)
	return d
}

// handle is what the worker does with a delivery.
func (s *shop) handle(ctx context.Context, d outbox.Delivery) (outbox.Outcome, error) {
	effect := s.Expire
	if d.Topic == model.TopicRemind {
		effect = s.Remind
	}
	return s.store.Handle(ctx, d, func(tx *gorm.DB) error { return effect(ctx, tx, d) })
}

// expire lets the order's time come and handles its delivery.
func (s *shop) expire(no string) outbox.Outcome {
	s.t.Helper()
	s.exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE message_key = ?`, []byte(no))
	outcome, err := s.handle(s.t.Context(), s.delivery(no))
	require.NoError(s.t, err)
	return outcome
}

func (s *shop) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err)
}

// number is a query's only value.
func (s *shop) number(query string, args ...any) int64 {
	s.t.Helper()
	var n int64
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query, args...).Scan(&n))
	return n
}

// rows counts the rows of every table that a transaction of orders can write.
func (s *shop) rows() map[string]int64 {
	s.t.Helper()
	counts := map[string]int64{}
	for _, table := range []string{
		"orders", "order_items", "products", "stock_movements", "payments", "refunds", "effects", "idempotency_keys", "outbox_messages",
	} {
		counts[table] = s.number("SELECT COUNT(*) FROM " + table)
	}
	return counts
}

func (s *shop) product(sku string) model.Product {
	s.t.Helper()
	p, err := s.Product(s.t.Context(), sku)
	require.NoError(s.t, err)
	return p
}

func (s *shop) order(no string) model.Order {
	s.t.Helper()
	o, err := s.Order(s.t.Context(), no)
	require.NoError(s.t, err)
	return o
}

// requireConserved checks by plain SQL what holds between any two transactions.
func (s *shop) requireConserved() {
	s.t.Helper()
	none := func(what, query string) {
		s.t.Helper()
		require.Zero(s.t, s.number(query), what)
	}
	none("products whose units are not the sum of their adjustments", `SELECT COUNT(*) FROM products p
		WHERE available + reserved + sold <> (SELECT COALESCE(SUM(quantity), 0) FROM stock_movements m
			WHERE m.sku = p.sku AND direction = 'adjust')`)
	none("products below zero", `SELECT COUNT(*) FROM products WHERE available < 0 OR reserved < 0 OR sold < 0`)
	none("products that reserve what no pending order holds", `SELECT COUNT(*) FROM products p
		WHERE reserved <> (SELECT COALESCE(SUM(i.quantity), 0) FROM order_items i JOIN orders o ON o.no = i.order_no
			WHERE i.sku = p.sku AND o.status = 'pending')`)
	none("products that sold what no paid order holds", `SELECT COUNT(*) FROM products p
		WHERE sold <> (SELECT COALESCE(SUM(i.quantity), 0) FROM order_items i JOIN orders o ON o.no = i.order_no
			WHERE i.sku = p.sku AND o.status = 'paid')`)
	none("items without exactly the movements of their order's status", `SELECT COUNT(*) FROM (
		SELECT o.status, i.order_no, i.item, SUM(m.direction = 'reserve') AS r, SUM(m.direction = 'release') AS l, SUM(m.direction = 'sell') AS s
		FROM orders o JOIN order_items i ON i.order_no = o.no LEFT JOIN stock_movements m ON m.order_no = i.order_no AND m.item = i.item
		GROUP BY o.status, i.order_no, i.item) AS x
		WHERE NOT (r = 1 AND l = (status = 'closed') AND s = (status = 'paid'))`)
	none("orders both paid and closed", `SELECT COUNT(*) FROM orders WHERE paid_at IS NOT NULL AND closed_at IS NOT NULL`)
	none("paid orders without exactly one kept payment, others with one", `SELECT COUNT(*) FROM orders o
		WHERE (status = 'paid') <> (SELECT COUNT(*) FROM payments p LEFT JOIN refunds r ON r.payment_id = p.payment_id
			WHERE p.order_no = o.no AND r.payment_id IS NULL)`)
	none("messages whose effect was committed twice", `SELECT COUNT(*) FROM (
		SELECT message_id FROM effects GROUP BY message_id HAVING COUNT(*) > 1) AS x`)
}

// together runs all of them at once and waits for them.
func together(fns ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, fn := range fns {
		wg.Go(func() {
			<-start
			fn()
		})
	}
	close(start)
	wg.Wait()
}
