package ui_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

const adminToken = "night-shift"

// shop is the real API on a database of the test's own, listening on an address that it keeps.
type shop struct {
	t      *testing.T
	db     *sql.DB
	store  *outbox.Store
	orders *ordering.Service
	base   string
	start  func()
	stop   func()
}

func newShop(t *testing.T) *shop {
	t.Helper()
	g, err := database.Open(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	db, err := g.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, database.Migrate(t.Context(), g,
		database.Set{Table: "outbox_schema", Files: outbox.Migrations},
		database.Set{Table: "ordering_schema", Files: ordering.Migrations}))
	store, err := outbox.NewStore(g, outbox.StoreConfig{})
	require.NoError(t, err)
	orders, err := ordering.New(g, store, ordering.Config{RemindBefore: 5 * time.Minute})
	require.NoError(t, err)
	s := &shop{t: t, db: db, store: store, orders: orders}
	address := devtest.Address(t)
	s.base = "http://" + address
	s.start = func() {
		server, err := api.New(api.Config{APIToken: "shop", AdminToken: adminToken, DrainTimeout: 5 * time.Second}, orders, store.Direct(), store.Operator(outbox.OperatorConfig{Protect: orders.Protect}), db.PingContext)
		require.NoError(t, err)
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		served := make(chan error, 1)
		go func() { served <- server.Serve(ctx, listener) }()
		s.stop = func() {
			cancel()
			require.NoError(t, <-served)
			s.stop = func() {}
		}
	}
	// A worker that is well; it is seen until long after the test.
	s.exec(`INSERT INTO outbox_relays (owner, seen_at, strategy, why, epoch, connected, since, queues)
		VALUES ('shop-1', UTC_TIMESTAMP(6) + INTERVAL 10 MINUTE, 'hold', 'the broker has no x-delayed-message exchange', 3, TRUE,
			UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, '[{"topic":"cart.remind","ready":4,"consumers":2}]')`)
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// put enqueues a message that fires after a delay, and then sets columns of its row, if any.
func (s *shop) put(topic, key string, delay time.Duration, set ...string) (id string) {
	s.t.Helper()
	r, err := s.store.Direct().Enqueue(s.t.Context(), &outbox.Message{
		Topic: topic, Key: key, Delay: delay, Payload: []byte(`{"cart":` + strconv.Quote(key) + `}`), ContentType: "application/json",
	})
	require.NoError(s.t, err)
	for _, columns := range set {
		s.exec("UPDATE outbox_messages SET "+columns+" WHERE id = ?", r.ID)
	}
	return strconv.FormatInt(r.ID, 10)
}

// What a row has besides in each state.
const (
	asPublished = "state = 'published', publishes = 1, published_at = UTC_TIMESTAMP(6), available_at = due_at + INTERVAL 30 SECOND"
	asDone      = "state = 'done', live_key = NULL, publishes = 1, due_at = UTC_TIMESTAMP(6) - INTERVAL 90 SECOND, created_at = due_at - INTERVAL 1 HOUR, " +
		"published_at = due_at + INTERVAL 2000 MICROSECOND, finished_at = due_at + INTERVAL 7000 MICROSECOND, available_at = finished_at + INTERVAL 7 DAY"
	asCanceled = "state = 'canceled', live_key = NULL, finished_at = UTC_TIMESTAMP(6), available_at = finished_at + INTERVAL 7 DAY"
	asDead     = "state = 'dead', available_at = NULL, attempts = 10, publishes = 10, due_at = UTC_TIMESTAMP(6) - INTERVAL 200 SECOND, created_at = due_at - INTERVAL 1 HOUR, " +
		"published_at = due_at, failed_at = UTC_TIMESTAMP(6), last_error = 'mail server says 451 try again later'"
	asLate = "due_at = UTC_TIMESTAMP(6) - INTERVAL 190 SECOND, created_at = due_at - INTERVAL 1 HOUR, available_at = due_at"
)

// fill gives the ledger something in every state, and the shop an order that is pending and one that is paid.
func (s *shop) fill() (order string) {
	s.t.Helper()
	for i := range 12 {
		s.put("cart.remind", fmt.Sprintf("cart-%03d", i), time.Duration(i+1)*4*time.Minute)
	}
	for i := range 5 {
		s.put("cart.remind", fmt.Sprintf("handed-%d", i), 5*time.Minute, asPublished)
		s.put("cart.remind", fmt.Sprintf("mailed-%d", i), time.Hour, asDone)
		s.put("mail.retry", fmt.Sprintf("failed-%d", i), time.Hour, asDead)
	}
	s.put("mail.retry", "tenant/42/"+longKey, time.Hour, asCanceled)
	require.NoError(s.t, s.store.Keep(s.t.Context(), outbox.Stray{
		Reason: "foreign", Detail: "belongs to store other", MessageID: "other-7", RoutingKey: "cart.remind", Headers: []byte(`{"key":"cart-7"}`), Payload: []byte("hi"),
	}))
	_, err := s.orders.SetStock(s.t.Context(), model.Stocking{SKU: "MUG", Name: "Mug", Stock: 100})
	require.NoError(s.t, err)
	paid := s.place("ben")
	_, err = s.orders.Pay(s.t.Context(), paid, model.Payment{ID: "pay-1", Amount: 2500})
	require.NoError(s.t, err)
	s.exec(`INSERT INTO outbox_reconcile_runs (kind, state, owner, report, requested_at, started_at, finished_at) VALUES
		('audit', 'completed', 'shop-1', '{"run":"1","audit":true,"looked":{"published":31},"findings":{"overdue":{"found":2,"mended":2,"ids":["1","2"]}},"left":[],"errors":[],"seconds":1.5}',
			UTC_TIMESTAMP(6) - INTERVAL 3 SECOND, UTC_TIMESTAMP(6) - INTERVAL 3 SECOND, UTC_TIMESTAMP(6) - INTERVAL 1500000 MICROSECOND)`)
	return s.place("ana")
}

const longKey = "a-key-that-is-as-long-as-keys-may-be-and-has-no-place-to-break-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-012345"

func (s *shop) place(user string) (no string) {
	s.t.Helper()
	o, err := s.orders.Place(s.t.Context(), model.Draft{Kind: "normal", User: user, Items: []model.Item{{SKU: "MUG", Quantity: 2, Price: 1250}}}, "")
	require.NoError(s.t, err)
	return o.No
}

func (s *shop) exec(query string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), query, args...)
	require.NoError(s.t, err)
}

// value is the only one of a query's only row, as text.
func (s *shop) value(query string, args ...any) (value string) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query, args...).Scan(&value))
	return value
}
