package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/client"
	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve is the URL of the API over the real services, and their store.
func serve(t *testing.T, cfg api.Config) (string, *outbox.Store) {
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
	orders, err := ordering.New(g, store, ordering.Config{})
	require.NoError(t, err)
	s, err := api.New(cfg, orders, store.Direct(), store.Operator(outbox.OperatorConfig{}), db.PingContext)
	require.NoError(t, err)
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server.URL, store
}

func connect(t *testing.T, url string, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(url, cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestClient_Orders(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, api.Config{APIToken: "a", AdminToken: "b"})
	c := connect(t, url, client.Config{APIToken: "a"})
	ctx := t.Context()
	require.NoError(t, c.Health(ctx))
	require.NoError(t, c.Readiness(ctx))
	p, err := c.PutProduct(ctx, "cup", "Cup <☕>", 10)
	require.NoError(t, err)
	require.Equal(t, client.Product{SKU: "cup", Name: "Cup <☕>", Available: 10}, p)

	draft := client.Draft{Kind: "normal", User: "ann", Items: []client.Item{{SKU: "cup", Quantity: 2, Price: 250}}}
	o, err := c.PlaceOrder(ctx, draft, "k-1")
	require.NoError(t, err)
	require.Equal(t, "pending", o.Status)
	require.Equal(t, int64(500), o.Total)
	require.Equal(t, draft.Items, o.Items)
	require.Zero(t, o.PaidAt)
	again, err := c.PlaceOrder(ctx, draft, "k-1")
	require.NoError(t, err)
	require.Equal(t, o, again)
	due := o.DueAt.Add(time.Hour)
	o, err = c.ExtendOrder(ctx, o.No, due)
	require.NoError(t, err)
	require.True(t, o.DueAt.Equal(due))
	o, err = c.PayOrder(ctx, o.No, "p-1", 500)
	require.NoError(t, err)
	require.Equal(t, "paid", o.Status)
	require.NotZero(t, o.PaidAt)
	second, err := c.PlaceOrder(ctx, draft, "")
	require.NoError(t, err)
	second, err = c.CancelOrder(ctx, second.No)
	require.NoError(t, err)
	require.Equal(t, "user", second.CloseReason)

	page, err := c.ListOrders(ctx, client.OrderFilter{User: "ann", Limit: 1})
	require.NoError(t, err)
	require.Equal(t, client.OrderPage{Orders: []client.Order{second}, Next: second.No}, page)
	var all []client.Order
	for o, err := range c.Orders(ctx, client.OrderFilter{Limit: 1}) {
		require.NoError(t, err)
		all = append(all, o)
	}
	require.Equal(t, []client.Order{second, o}, all)
	got, err := c.GetOrder(ctx, o.No)
	require.NoError(t, err)
	require.Equal(t, o, got)
	p, err = c.GetProduct(ctx, "cup")
	require.NoError(t, err)
	require.Equal(t, client.Product{SKU: "cup", Name: "Cup <☕>", Available: 8, Sold: 2}, p)

	_, err = c.CancelOrder(ctx, o.No)
	require.Equal(t, client.OrderPaid, client.TypeOf(err))
	_, err = c.PayOrder(ctx, second.No, "p-2", 499)
	require.Equal(t, client.WrongAmount, client.TypeOf(err))
	_, err = c.PlaceOrder(ctx, client.Draft{Kind: "gift", Items: draft.Items}, "")
	var problem *client.ProblemError
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.InvalidInput, problem.Type)
	require.Equal(t, http.StatusBadRequest, problem.Status)
	require.Contains(t, problem.Fields, client.FieldFault{Field: "kind", Detail: "must be normal, flash or presale"})
	require.ErrorContains(t, err, "client: POST /v1/orders: 400 invalid-input: kind: must be normal, flash or presale; user: must be ")

	_, err = connect(t, url, client.Config{APIToken: "wrong"}).GetOrder(ctx, o.No)
	require.Equal(t, client.Unauthorized, client.TypeOf(err))
}

func TestClient_MessagesAndDeliveries(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, api.Config{})
	c := connect(t, url, client.Config{})
	ctx := t.Context()
	const topic, key = "cart.remind", "cart/42 ü?#%"
	m, replaced, err := c.PutMessage(ctx, topic, key, client.NewMessage{Payload: json.RawMessage(`{"a":1.50}`), Delay: 90 * time.Minute})
	require.NoError(t, err)
	require.False(t, replaced)
	require.Equal(t, key, m.Key)
	require.Equal(t, "scheduled", m.State)
	require.True(t, m.Tracked)
	require.InDelta(t, 90*60, m.DueAt.Sub(m.CreatedAt).Seconds(), 1)
	m, replaced, err = c.PutMessage(ctx, topic, key, client.NewMessage{
		Bytes: []byte{0, 255}, ContentType: "image/png", Headers: map[string]string{"lang": "de"}, DueAt: time.Date(2035, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	require.NoError(t, err)
	require.True(t, replaced)
	require.Equal(t, int64(2), m.Generation)
	require.Equal(t, 2035, m.DueAt.Year())
	_, _, err = c.PutMessage(ctx, topic, key, client.NewMessage{IfNone: true})
	require.Equal(t, client.MessageExists, client.TypeOf(err))
	got, err := c.GetMessage(ctx, topic, key, "")
	require.NoError(t, err)
	require.Equal(t, m, got)

	d := client.Delivery{ID: m.ID, Generation: 3}
	m, err = c.MoveMessage(ctx, topic, key, time.Time{}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, d.Generation, m.Generation)
	err = c.AskDelivery(ctx, d)
	var problem *client.ProblemError
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.DeliveryEarly, problem.Type)
	require.Equal(t, time.Minute, problem.RetryAfter)
	_, err = c.MoveMessage(ctx, topic, key, time.Time{}, 0)
	require.NoError(t, err)
	require.Equal(t, client.DeliveryStale, client.TypeOf(c.AskDelivery(ctx, d)))
	d.Generation++
	require.NoError(t, c.AskDelivery(ctx, d))
	require.NoError(t, c.FinishDelivery(ctx, d))
	require.NoError(t, c.FinishDelivery(ctx, d))
	require.Equal(t, client.DeliveryDone, client.TypeOf(c.AskDelivery(ctx, d)))
	d.Store = "another"
	require.Equal(t, client.DeliveryForeign, client.TypeOf(c.AskDelivery(ctx, d)))
	_, err = c.GetMessage(ctx, topic, key, "")
	require.Equal(t, client.NoSuchMessage, client.TypeOf(err))
	m, err = c.GetMessage(ctx, topic, key, m.ID)
	require.NoError(t, err)
	require.Equal(t, "done", m.State)

	_, _, err = c.PutMessage(ctx, topic, "1", client.NewMessage{Untracked: true, Delay: time.Hour})
	require.NoError(t, err)
	require.NoError(t, c.WithdrawMessage(ctx, topic, "1"))
	require.Equal(t, client.NoSuchMessage, client.TypeOf(c.WithdrawMessage(ctx, topic, "1")))
}

func TestClient_Runs(t *testing.T) {
	t.Parallel()
	url, store := serve(t, api.Config{APIToken: "a", AdminToken: "b"})
	c := connect(t, url, client.Config{APIToken: "a", AdminToken: "b"})
	id, err := c.RequestRun(t.Context(), client.Scope{DryRun: true})
	require.NoError(t, err)
	run, err := c.GetRun(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "requested", run.State)
	require.Nil(t, run.Report)
	rec, err := outbox.NewReconciler(store, outbox.ReconcileConfig{Owner: "w"})
	require.NoError(t, err)
	_, err = rec.RunRequested(t.Context())
	require.NoError(t, err)
	run, err = c.GetRun(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "completed", run.State)
	require.Equal(t, id, run.Report.Run)
	require.NotZero(t, run.FinishedAt)

	_, err = connect(t, url, client.Config{APIToken: "a"}).RequestRun(context.Background(), client.Scope{})
	require.Equal(t, client.Unauthorized, client.TypeOf(err))
}
