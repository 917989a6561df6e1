package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// A server without tokens trusts whoever is on its machine. A browser there shows pages of others, which must not be able to use it.
func TestLocal_PagesOfOthersCannotUseAServerWithoutTokens(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "10")
	before := s.contents(t.Context())
	ask := func(method, path, host string, header ...string) answer {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		s.server.Handler().ServeHTTP(w, r)
		return answer{w.Code, w.Header(), w.Body.Bytes()}
	}
	for _, path := range []string{"/v1/products/cup", "/v1/orders", "/metrics", "/ui/session", "/v1/admin/reconcile/1", "/v1/messages/cart.remind/1"} {
		for _, host := range []string{"rebound.example", "rebound.example:8080", "127.0.0.1.rebound.example", "localhost.example", "10.0.0.1:8080", "[::2]:8080", "", "0.0.0.0:8080"} {
			a := ask("GET", path, host)
			require.Equal(t, http.StatusForbidden, a.status, "%s %q", path, host)
			kind, _ := a.problem(t)
			require.Equal(t, "not-local", kind)
		}
		for _, host := range []string{"localhost", "localhost:8080", "LocalHost:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]"} {
			require.NotEqual(t, http.StatusForbidden, ask("GET", path, host).status, "%s %q", path, host)
		}
	}
	for _, path := range []string{"/v1/admin/reconcile", "/v1/orders", "/v1/orders/a/cancel", "/v1/deliveries/1/done"} {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
			{"Origin", "http://localhost:3000"},
		} {
			a := ask("POST", path, "localhost:8080", header...)
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", path, header)
			kind, _ := a.problem(t)
			require.Equal(t, "forged-request", kind)
		}
	}
	require.Equal(t, before, s.contents(t.Context()))
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://localhost:8080"}, {}} {
		require.Equal(t, http.StatusAccepted, ask("POST", "/v1/admin/reconcile", "localhost:8080", header...).status, "%s", header)
	}
}

// Where there is a token, another page does not know it: whatever host and origin stand in front are the operator's affair.
func TestLocal_TokensNeedNoHost(t *testing.T) {
	t.Parallel()
	s := newShop(t, guarded())
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/orders", nil)
	r.Host = "shop.example"
	r.Header.Set("Authorization", "Bearer api-token")
	r.Header.Set("Origin", "https://www.shop.example")
	w := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
}
