package api_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/model"
)

func TestOutage_IsA503ThatSaysNothingOfTheInside(t *testing.T) {
	t.Parallel()
	mariadb := devtest.MariaDB(t)
	var log bytes.Buffer
	s := openShop(t, mariadb.DSN("test"), api.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.stock("cup", "10")
	no := s.place()
	before := s.contents(t.Context())
	require.NoError(t, mariadb.Kill())

	require.Equal(t, http.StatusOK, s.do("GET", "/healthz", "").status, "the process is well")
	for _, r := range [][3]string{
		{"GET", "/readyz"},
		{"POST", "/v1/orders", order("cup")},
		{"GET", "/v1/orders"},
		{"GET", "/v1/orders/" + no},
		{"POST", "/v1/orders/" + no + "/pay", `{"payment_id":"p","amount":500}`},
		{"POST", "/v1/orders/" + no + "/cancel"},
		{"PATCH", "/v1/orders/" + no + "/due", `{"due_at":"` + time.Now().Add(time.Hour).Format(time.RFC3339) + `"}`},
		{"PUT", "/v1/products/cup", `{"name":"x","stock":1}`},
		{"GET", "/v1/products/cup"},
		{"PUT", "/v1/messages/t/1", `{}`},
		{"GET", "/v1/messages/t/1"},
		{"PATCH", "/v1/messages/t/1", `{"delay":"1h"}`},
		{"DELETE", "/v1/messages/t/1"},
		{"GET", "/v1/deliveries/1?generation=1"},
		{"POST", "/v1/deliveries/1/done", `{"generation":1}`},
		{"POST", "/v1/admin/reconcile"},
		{"GET", "/v1/admin/reconcile/1"},
		{"GET", "/v1/admin/reconcile"},
		{"GET", "/v1/admin/overview"},
		{"GET", "/v1/admin/messages"},
		{"GET", "/v1/admin/messages/1"},
		{"POST", "/v1/admin/messages/1/cancel"},
		{"POST", "/v1/admin/messages/bulk", `{"action":"cancel","filter":{"topic":"t"}}`},
		{"GET", "/v1/admin/audit"},
		{"GET", "/v1/admin/unrouted"},
		{"GET", "/v1/admin/orders"},
		{"GET", "/v1/admin/orders/" + no},
	} {
		began := time.Now()
		a := s.do(r[0], r[1], r[2])
		require.Equal(t, http.StatusServiceUnavailable, a.status, "%s %s: %s", r[0], r[1], a.body)
		require.Equal(t, "2", a.header.Get("Retry-After"))
		kind, fields := a.problem(t)
		require.Equal(t, "unavailable", kind)
		require.Empty(t, fields)
		for _, inside := range []string{"127.0.0.1", "sql", "tcp", "connect", "refused", "driver", "EOF"} {
			require.NotContains(t, strings.ToLower(string(a.body)), strings.ToLower(inside))
		}
		require.Less(t, time.Since(began), 12*time.Second)
	}
	require.Contains(t, log.String(), "level=WARN")

	require.NoError(t, mariadb.Start(t.Context()))
	require.Eventually(t, func() bool { return s.do("GET", "/readyz", "").status == http.StatusOK }, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, before, s.contents(t.Context()))
	s.place()
}

func TestDeadline_EndsARequestThatTheDatabaseHolds(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	impatient := newServer(t, api.Config{Deadline: 300 * time.Millisecond}, s.orders, quiet{}, stub{}, always)
	s.stock("cup", "10")
	before := s.contents(t.Context())
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE products SET name = 'held' WHERE sku = 'cup'")
	require.NoError(t, err)

	began := time.Now()
	a := do(t, impatient.Handler(), "POST", "/v1/orders", order("cup"))
	require.Equal(t, http.StatusServiceUnavailable, a.status, "%s", a.body)
	require.Less(t, time.Since(began), 5*time.Second)
	require.NoError(t, tx.Rollback())
	require.Equal(t, before, s.contents(t.Context()))
	s.place()
}

// rest is every call that a test is not about; none is made.
type rest interface {
	api.Orders
	api.Operator
}

// quiet is a gateway that no test uses.
type quiet struct{ api.Messages }

func TestReadyz_SaysThatTheTablesAreMissing(t *testing.T) {
	t.Parallel()
	server := newServer(t, api.Config{}, stub{}, quiet{}, stub{}, func(context.Context) error { return fmt.Errorf("ask: %w", api.ErrNoTables) })
	a := do(t, server.Handler(), "GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, string(a.body), `"detail":"the database lacks tables: run duebox migrate"`)
}

// stub is the one call that a test is about.
type stub struct {
	rest
	order func(ctx context.Context, no string) (model.Order, error)
}

func (s stub) Order(ctx context.Context, no string) (model.Order, error) { return s.order(ctx, no) }

func always(context.Context) error { return nil }

func TestPanic_IsA500ForOneRequestAndALineInTheLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	orders := stub{order: func(_ context.Context, no string) (model.Order, error) {
		if no == "bad" {
			panic("secret detail")
		}
		return model.Order{
			No: no, Kind: model.Flash, User: "ann", Status: model.Pending, Items: []model.Item{{SKU: "cup", Quantity: 1}}, DueAt: time.Now(), CreatedAt: time.Now(),
		}, nil
	}}
	server := newServer(t, api.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, orders, quiet{}, stub{}, always)
	a := do(t, server.Handler(), "GET", "/v1/orders/bad", "")
	require.Equal(t, http.StatusInternalServerError, a.status)
	kind, _ := a.problem(t)
	require.Equal(t, "internal", kind)
	require.NotContains(t, string(a.body), "secret")
	require.Contains(t, log.String(), "secret detail")
	require.Contains(t, log.String(), "outage_test.go", "the stack")
	require.Equal(t, http.StatusOK, do(t, server.Handler(), "GET", "/v1/orders/good", "").status)
}

func TestClientThatHasLeft_IsNoFaultOfOurs(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	var log bytes.Buffer
	orders := stub{order: func(ctx context.Context, _ string) (model.Order, error) {
		<-ctx.Done()
		return model.Order{}, ctx.Err()
	}}
	server := newServer(t, api.Config{Registry: registry, Log: slog.New(slog.NewTextHandler(&log, nil))}, orders, quiet{}, stub{}, always)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	doCtx(ctx, t, server.Handler(), "GET", "/v1/orders/a", "")
	require.NotContains(t, log.String(), "request not served")
	require.Contains(t, string(do(t, server.Handler(), "GET", "/metrics", "").body),
		`duebox_http_requests_total{code="499",method="GET",route="/v1/orders/:no"} 1`)
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := api.New(api.Config{}, nil, quiet{}, stub{}, always)
	require.Error(t, err)
	_, err = api.New(api.Config{}, stub{}, nil, stub{}, always)
	require.Error(t, err)
	_, err = api.New(api.Config{}, stub{}, quiet{}, nil, always)
	require.Error(t, err)
	_, err = api.New(api.Config{}, stub{}, quiet{}, stub{}, nil)
	require.Error(t, err)
	_, err = api.New(api.Config{Deadline: -1}, stub{}, quiet{}, stub{}, always)
	require.Error(t, err)
	registry := prometheus.NewRegistry()
	_, err = api.New(api.Config{Registry: registry}, stub{}, quiet{}, stub{}, always)
	require.NoError(t, err)
	_, err = api.New(api.Config{Registry: registry}, stub{}, quiet{}, stub{}, always)
	require.Error(t, err, "metrics can be registered once")
}
