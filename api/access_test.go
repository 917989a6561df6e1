package api_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func TestTokens_GuardTheirRoutes(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{APIToken: "api-token", AdminToken: "admin-token"})
	before := s.contents(t.Context())
	v1 := [][3]string{
		{"POST", "/v1/orders", order("cup")},
		{"GET", "/v1/orders"},
		{"GET", "/v1/orders/a"},
		{"POST", "/v1/orders/a/pay", "{}"},
		{"POST", "/v1/orders/a/cancel"},
		{"PATCH", "/v1/orders/a/due", "{}"},
		{"PUT", "/v1/products/cup", `{"name":"x","stock":1}`},
		{"GET", "/v1/products/cup"},
		{"PUT", "/v1/messages/cart.remind/1", "{}"},
		{"GET", "/v1/messages/cart.remind/1"},
		{"PATCH", "/v1/messages/cart.remind/1", `{"delay":"1h"}`},
		{"DELETE", "/v1/messages/cart.remind/1"},
		{"GET", "/v1/deliveries/1?generation=1"},
		{"POST", "/v1/deliveries/1/done", `{"generation":1}`},
	}
	require.Len(t, v1, s.routes("/v1/")-s.routes("/v1/admin/"), "every route below /v1")
	refused := func(method, path, body string, header ...string) {
		t.Helper()
		a := s.do(method, path, body, header...)
		require.Equal(t, http.StatusUnauthorized, a.status, "%s %s %s", method, path, header)
		kind, _ := a.problem(t)
		require.Equal(t, "unauthorized", kind)
		require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
	}
	for _, r := range v1 {
		refused(r[0], r[1], r[2])
		for _, credentials := range []string{
			"Bearer admin-token", "Bearer", "Bearer api-toke", "Bearer api-token ", "Basic api-token", "api-token", "Bearer api-tokens",
		} {
			refused(r[0], r[1], r[2], "Authorization: "+credentials)
		}
		a := s.do(r[0], r[1], r[2], "Authorization: bearer api-token")
		require.NotEqual(t, http.StatusUnauthorized, a.status, "%s %s", r[0], r[1])
	}
	for _, r := range [][3]string{
		{"POST", "/v1/admin/reconcile", `{"audit":true}`},
		{"GET", "/v1/admin/reconcile/1"},
		{"GET", "/v1/admin/reconcile"},
		{"GET", "/v1/admin/overview"},
		{"GET", "/v1/admin/messages"},
		{"GET", "/v1/admin/messages/1"},
		{"POST", "/v1/admin/messages/1/requeue"},
		{"POST", "/v1/admin/messages/1/cancel"},
		{"POST", "/v1/admin/messages/1/reschedule", `{"delay":"1h"}`},
		{"POST", "/v1/admin/messages/1/publish-now"},
		{"POST", "/v1/admin/messages/bulk", `{"action":"cancel","filter":{"topic":"t"}}`},
		{"GET", "/v1/admin/audit"},
		{"GET", "/v1/admin/unrouted"},
		{"GET", "/v1/admin/orders"},
		{"GET", "/v1/admin/orders/a"},
	} {
		before := s.contents(t.Context())
		for _, credentials := range []string{"", "Authorization: Bearer api-token", "Authorization: Bearer", "Authorization: Basic admin-token"} {
			refused(r[0], r[1], r[2], credentials)
		}
		require.Equal(t, before, s.contents(t.Context()))
		a := s.do(r[0], r[1], r[2], "Authorization: Bearer admin-token")
		require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, "%s %s: %s", r[0], r[1], a.body)
		require.Less(t, a.status, http.StatusInternalServerError, "%s %s: %s", r[0], r[1], a.body)
	}
	refused("GET", "/metrics", "")
	refused("GET", "/metrics", "", "Authorization: Bearer api-token")
	require.Equal(t, http.StatusOK, s.do("GET", "/metrics", "", "Authorization: Bearer admin-token").status)
	require.Equal(t, http.StatusOK, s.do("GET", "/healthz", "").status)
	require.Equal(t, http.StatusOK, s.do("GET", "/readyz", "").status)
	require.NotEqual(t, before, s.contents(t.Context()), "the product that the right token put")
}

// Whoever has set one token has not meant to leave the other half open.
func TestTokens_AdminRoutesAreShutWithoutTheirOwn(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{APIToken: "api-token"})
	for _, r := range [][3]string{{"POST", "/v1/admin/reconcile", `{}`}, {"GET", "/v1/admin/reconcile/1"}} {
		for _, header := range []string{"Authorization: Bearer api-token", "Authorization: Bearer", "Authorization: Bearer "} {
			a := s.do(r[0], r[1], r[2], header)
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", r[0], r[1])
			kind, _ := a.problem(t)
			require.Equal(t, "admin-token-not-set", kind)
			require.Contains(t, string(a.body), "ADMIN_TOKEN")
		}
	}
	require.Zero(t, s.number("SELECT COUNT(*) FROM outbox_reconcile_runs"))
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/orders?user=ann", "", "Authorization: Bearer api-token").status)

	open := newShop(t, api.Config{})
	require.Equal(t, http.StatusAccepted, open.do("POST", "/v1/admin/reconcile", `{}`).status, "without any token, on loopback")
}

func TestMetrics_CountByRouteAndNotByPath(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "10")
	s.place()
	s.place()
	s.do("GET", "/v1/orders/x1", "")
	s.do("GET", "/v1/orders/x2", "")
	s.do("GET", "/nothing/here", "")
	s.do("BREW", "/v1/orders", "")
	text := string(s.do("GET", "/metrics", "").body)
	for _, line := range []string{
		`duebox_http_requests_total{code="201",method="POST",route="/v1/orders"} 2`,
		`duebox_http_requests_total{code="404",method="GET",route="/v1/orders/:no"} 2`,
		`duebox_http_requests_total{code="404",method="GET",route="none"} 1`,
		`duebox_http_requests_total{code="405",method="other",route="none"} 1`,
		`duebox_http_request_duration_seconds_count{method="POST",route="/v1/orders"} 2`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "x1")
}

func TestAccessLog_HasOneLineForEachRequestAndNoInput(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newShop(t, api.Config{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	s.do("GET", "/v1/orders?user=ann-private", "", "Authorization: Bearer hidden")
	s.do("POST", "/v1/orders", `{"user":"ann-private"}`)
	s.do("GET", "/v1/orders/a%0Ab%1b[31m", "")
	s.do("GET", "/healthz", "")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 3, "probes are for the debug level")
	require.Contains(t, lines[0], `"method":"GET","route":"/v1/orders","path":"/v1/orders","status":200`)
	require.Contains(t, lines[1], `"status":400`)
	require.NotContains(t, log.String(), "private")
	require.NotContains(t, log.String(), "hidden")
	require.NotContains(t, log.String(), "\x1b")
}

type slowBody struct{}

func (slowBody) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

func TestBody_ThatDoesNotArriveIsA4xx(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	for status, body := range map[int]io.Reader{
		http.StatusRequestTimeout:        slowBody{},
		http.StatusBadRequest:            brokenBody{},
		http.StatusRequestEntityTooLarge: io.MultiReader(strings.NewReader("{"), bytes.NewReader(bytes.Repeat([]byte(" "), 70_000))), // no length
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/orders", body)
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.server.Handler().ServeHTTP(w, r)
		require.Equal(t, status, w.Code, "%s", w.Body)
		answer{w.Code, w.Header(), w.Body.Bytes()}.problem(t)
	}
}

// Scenario 30: characters of four bytes.
func TestScenario30_NamesTravelByteIdentical(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	const name = "Teekanne 🫖 𝔊𝔯𝔬ß 👩‍👩‍👧‍👦 茶壶 𠜎"
	for _, body := range []string{
		`{"name":"` + name + `","stock":9}`,
		`{"name":"Teekanne \ud83e\uded6 \ud835\udd0a\ud835\udd2f\ud835\udd2c\u00df \ud83d\udc69\u200d\ud83d\udc69\u200d\ud83d\udc67\u200d\ud83d\udc66 \u8336\u58f6 \ud841\udf0e","stock":9}`,
	} {
		a := s.do("PUT", "/v1/products/cup", body)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		require.Contains(t, string(a.body), `"name":"`+name+`"`)
		require.Contains(t, string(s.do("GET", "/v1/products/cup", "").body), `"name":"`+name+`"`)
	}

	no := s.place()
	_, err := s.db.ExecContext(t.Context(), "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6)")
	require.NoError(t, err)
	store, err := s.store.StoreID(t.Context())
	require.NoError(t, err)
	d := outbox.Delivery{Store: store, Topic: model.TopicExpire, Key: no, Generation: 1, Payload: model.OrderPayload{No: no}.Encode()}
	m, err := s.store.Lookup(t.Context(), d.Topic, d.Key)
	require.NoError(t, err)
	d.ID = m.ID
	var seen string
	outcome, err := s.store.Handle(t.Context(), d, func(tx *gorm.DB) error {
		if err := s.orders.Expire(t.Context(), tx, d); err != nil {
			return err
		}
		return tx.Raw("SELECT p.name FROM products p JOIN order_items i ON i.sku = p.sku WHERE i.order_no = ?", no).Row().Scan(&seen)
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
	require.Equal(t, []byte(name), []byte(seen), "what the consumer's effect sees")
}
