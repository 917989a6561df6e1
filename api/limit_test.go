package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// from sends a request of an address.
func from(t *testing.T, s *api.Server, remote, path, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.RemoteAddr, r.Host = remote, "localhost"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestLimit_IsEachClientsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded()
		cfg.Rate, cfg.RateUnknown = 5, 1
		s := newServer(t, cfg, stub{}, quiet{}, stub{}, always)
		const path = "/v1/orders?unknown=1"
		spend := func(remote, token string, calls, status int) {
			t.Helper()
			for range calls {
				require.Equal(t, status, from(t, s, remote, path, token).Code)
			}
			w := from(t, s, remote, path, token)
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			kind, _ := answer{w.Code, w.Header(), w.Body.Bytes()}.problem(t)
			require.Equal(t, "too-many-requests", kind)
		}
		spend("10.0.0.1:1", "api-token", 10, http.StatusBadRequest)
		spend("10.0.0.1:2", "wrong", 2, http.StatusUnauthorized) // another port is the same client, and guesses are counted apart
		spend("10.0.0.2:1", "", 2, http.StatusUnauthorized)
		spend("10.0.0.2:1", "api-token", 10, http.StatusBadRequest) // who guesses beside it does not lock it out
		spend("[2001:db8::1]:1", "", 2, http.StatusUnauthorized)
		require.Equal(t, http.StatusTooManyRequests, from(t, s, "[2001:db8::ffff:1]:1", path, "").Code, "the same network")
		require.Equal(t, http.StatusUnauthorized, from(t, s, "[2001:db8:0:1::1]:1", path, "").Code)
		for range 100 {
			require.Equal(t, http.StatusOK, from(t, s, "10.0.0.1:1", "/healthz", "").Code, "probes are not counted")
		}
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble's clock
		spend("10.0.0.1:1", "api-token", 5, http.StatusBadRequest)
	})
}

func TestLimit_ZeroIsNone(t *testing.T) {
	t.Parallel()
	s := newServer(t, guarded(), stub{}, quiet{}, stub{}, always)
	for range 1000 {
		require.Equal(t, http.StatusUnauthorized, from(t, s, "10.0.0.1:1", "/v1/orders", "").Code)
	}
	for _, cfg := range []api.Config{{Rate: -1}, {RateUnknown: -1}} {
		_, err := api.New(cfg, stub{}, quiet{}, stub{}, always)
		require.ErrorContains(t, err, "below zero")
	}
}
