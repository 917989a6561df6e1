package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a server over the real service on a database of the test's own.
type shop struct {
	t      testing.TB
	gorm   *gorm.DB
	db     *sql.DB
	store  *outbox.Store
	orders *ordering.Service
	server *api.Server
}

func newShop(tb testing.TB, cfg api.Config) *shop {
	tb.Helper()
	return openShop(tb, devtest.Database(tb), cfg)
}

func openShop(tb testing.TB, dsn string, cfg api.Config) *shop {
	tb.Helper()
	g, err := database.Open(tb.Context(), dsn)
	require.NoError(tb, err)
	db, err := g.DB()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	err = database.Migrate(tb.Context(), g,
		database.Set{Table: "outbox_schema", Files: outbox.Migrations},
		database.Set{Table: "ordering_schema", Files: ordering.Migrations})
	require.NoError(tb, err)
	store, err := outbox.NewStore(g, outbox.StoreConfig{})
	require.NoError(tb, err)
	orders, err := ordering.New(g, store, ordering.Config{})
	require.NoError(tb, err)
	server := newServer(tb, cfg, orders, store.Direct(), store.Operator(outbox.OperatorConfig{Protect: orders.Protect}), db.PingContext)
	return &shop{t: tb, gorm: g, db: db, store: store, orders: orders, server: server}
}

// newServer makes every server of these tests: whatever it answers, also over a connection, is held against the OpenAPI document.
func newServer(
	tb testing.TB, cfg api.Config, orders api.Orders, messages api.Messages, runs api.Operator, ready func(context.Context) error,
) *api.Server {
	tb.Helper()
	server, err := api.New(cfg, orders, messages, runs, ready)
	require.NoError(tb, err)
	c, err := contract()
	require.NoError(tb, err)
	server.Wrap(func(h http.Handler) http.Handler {
		return holding{h, c, func(r *http.Request, err error) {
			asker := tb
			if t, ok := r.Context().Value(askerKey{}).(testing.TB); ok {
				asker = t
			}
			asker.Errorf("the OpenAPI document does not allow this: %s %s: %v", r.Method, r.URL.EscapedPath(), err)
		}}
	})
	return server
}

// askerKey is the context's key of the test that sends a request, if that is another one than has made the server.
type askerKey struct{}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request straight to the handler. Header lines have the form "Name: value"; a body is JSON unless one says
// otherwise.
func (s *shop) do(method, path, body string, header ...string) answer {
	s.t.Helper()
	return do(s.t, s.server.Handler(), method, path, body, header...)
}

func do(tb testing.TB, h http.Handler, method, path, body string, header ...string) answer {
	tb.Helper()
	return doCtx(tb.Context(), tb, h, method, path, body, header...)
}

func doCtx(ctx context.Context, tb testing.TB, h http.Handler, method, path, body string, header ...string) answer {
	tb.Helper()
	r := httptest.NewRequestWithContext(context.WithValue(ctx, askerKey{}, tb), method, path, strings.NewReader(body))
	r.Host = "localhost:8080"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if value == "" {
			r.Header.Del(name)
		} else {
			r.Header[http.CanonicalHeaderKey(name)] = append(r.Header.Values(name), value)
		}
	}
	if values := r.Header.Values("Content-Type"); len(values) == 2 {
		r.Header.Set("Content-Type", values[1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

// problem reads a problem document and checks what every one of them has.
func (a answer) problem(tb testing.TB) (typ string, fields []string) {
	tb.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
		Errors              []struct{ Field, Detail string }
	}
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	require.NoError(tb, dec.Decode(&p), "%s", a.body)
	require.Equal(tb, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(tb, a.status, p.Status)
	require.NotEmpty(tb, p.Title)
	require.NotEmpty(tb, p.Detail)
	for _, e := range p.Errors {
		require.NotEmpty(tb, e.Detail)
		fields = append(fields, e.Field)
	}
	return strings.TrimPrefix(p.Type, "urn:duebox:problem:"), fields
}

// json reads a body into a map.
func (a answer) json(tb testing.TB) map[string]any {
	tb.Helper()
	var v map[string]any
	require.NoError(tb, json.Unmarshal(a.body, &v), "%s", a.body)
	return v
}

func (s *shop) stock(sku, units string) {
	s.t.Helper()
	require.Equal(s.t, http.StatusOK, s.do("PUT", "/v1/products/"+sku, `{"name":"Teapot","stock":`+units+`}`).status)
}

// place places an order of two cups over 500 and returns its number.
func (s *shop) place() string {
	s.t.Helper()
	a := s.do("POST", "/v1/orders", order("cup"))
	require.Equal(s.t, http.StatusCreated, a.status, "%s", a.body)
	no, _ := a.json(s.t)["no"].(string)
	return no
}

func order(sku string) string {
	return `{"kind":"normal","user":"ann","items":[{"sku":"` + sku + `","quantity":2,"price":250}]}`
}

// contents is every row that a request can write, as text.
func (s *shop) contents(ctx context.Context) string {
	s.t.Helper()
	var all strings.Builder
	for _, table := range []string{
		"orders", "order_items", "products", "stock_movements", "payments", "refunds", "effects", "idempotency_keys", "outbox_messages",
		"outbox_reconcile_runs", "outbox_audit",
	} {
		all.WriteString(table + "\n")
		s.dump(ctx, &all, "SELECT * FROM "+table+" ORDER BY 1, 2")
	}
	return all.String()
}

func (s *shop) dump(ctx context.Context, to *strings.Builder, query string) {
	s.t.Helper()
	rows, err := s.db.QueryContext(ctx, query)
	require.NoError(s.t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(s.t, err)
	values := make([]sql.RawBytes, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		require.NoError(s.t, rows.Scan(into...))
		for _, v := range values {
			to.WriteString(string(v) + "|")
		}
		to.WriteString("\n")
	}
	require.NoError(s.t, rows.Err())
}

func (s *shop) number(query string) int64 {
	s.t.Helper()
	var n int64
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}
