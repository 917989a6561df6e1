package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// login logs in and returns the cookie's and the CSRF token's header lines.
func (s *shop) login(name string) (cookie, csrf string) {
	s.t.Helper()
	a := s.do("POST", "/ui/session", `{"token":"admin-token","name":"`+name+`"}`)
	require.Equal(s.t, http.StatusNoContent, a.status, "%s", a.body)
	value, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	cookie = "Cookie: " + value
	text, _ := s.do("GET", "/ui/session", "", cookie).json(s.t)["csrf"].(string)
	require.NotEmpty(s.t, text)
	return cookie, "X-CSRF-Token: " + text
}

func guarded() api.Config { return api.Config{APIToken: "api-token", AdminToken: "admin-token"} }

func TestSession_OpensTheOperatorsRoutes(t *testing.T) {
	t.Parallel()
	s := newShop(t, guarded())
	a := s.do("POST", "/ui/session", `{"token":"admin-token","name":"Zoë K."}`)
	require.Equal(t, http.StatusNoContent, a.status)
	require.Empty(t, a.body)
	set := a.header.Get("Set-Cookie")
	for _, attribute := range []string{"duebox_session=", "; Path=/", "; Max-Age=43200", "; HttpOnly", "; SameSite=Strict"} {
		require.Contains(t, set, attribute)
	}
	require.NotContains(t, set, "Secure", "this connection is not encrypted")
	require.Contains(t, s.do("POST", "/ui/session", `{"token":"admin-token","name":"a"}`, "X-Forwarded-Proto: https").header.Get("Set-Cookie"), "; Secure")

	cookie, csrf := s.login("Zoë K.")
	shown := s.do("GET", "/ui/session", "", cookie)
	require.Equal(t, http.StatusOK, shown.status)
	require.Equal(t, map[string]any{"name": "Zoë K.", "csrf": strings.TrimPrefix(csrf, "X-CSRF-Token: "), "login_required": true}, shown.json(t))

	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/admin/reconcile/1", "", cookie).status)
	require.Equal(t, http.StatusAccepted, s.do("POST", "/v1/admin/reconcile", "{}", cookie, csrf).status)
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/admin/reconcile/1", "", cookie).status)
	require.Equal(t, http.StatusUnauthorized, s.do("GET", "/v1/orders", "", cookie).status, "orders want the other token")
	require.Equal(t, http.StatusUnauthorized, s.do("GET", "/metrics", "", cookie).status)

	out := s.do("DELETE", "/ui/session", "", cookie)
	require.Equal(t, http.StatusNoContent, out.status)
	require.Contains(t, out.header.Get("Set-Cookie"), "duebox_session=; Path=/; Max-Age=0")
}

func TestSession_AnotherServerWithTheSameTokenKnowsIt(t *testing.T) {
	t.Parallel()
	s, same := newShop(t, guarded()), newShop(t, guarded())
	other := newShop(t, api.Config{APIToken: "api-token", AdminToken: "another-token"})
	cookie, csrf := s.login("ann")
	require.Equal(t, http.StatusAccepted, same.do("POST", "/v1/admin/reconcile", "{}", cookie, csrf).status)
	require.Equal(t, http.StatusUnauthorized, other.do("POST", "/v1/admin/reconcile", "{}", cookie, csrf).status, "a new token ends all sessions")
}

func TestSession_IsRefusedWhenItIsNotOurs(t *testing.T) {
	t.Parallel()
	s := newShop(t, guarded())
	cookie, csrf := s.login("ann")
	mine := strings.TrimPrefix(cookie, "Cookie: duebox_session=")
	body, sum, _ := strings.Cut(mine, ".")
	for name, value := range map[string]string{
		"none":              "",
		"no sum":            body,
		"an empty sum":      body + ".",
		"another body":      "eyJuYW1lIjoicm9vdCIsInVudGlsIjo5OTk5OTk5OTk5fQ." + sum,
		"one bit":           flipped(body) + "." + sum,
		"the CSRF token":    body + "." + strings.TrimPrefix(csrf, "X-CSRF-Token: "),
		"over":              s.server.Session("ann", time.Now().Add(-time.Second)),
		"not even encoded":  "%%%." + sum,
		"far too long":      strings.Repeat("A", 10_000),
		"of another server": newShop(t, api.Config{APIToken: "a", AdminToken: "b"}).server.Session("ann", time.Now().Add(time.Hour)),
	} {
		header := "Cookie: duebox_session=" + value
		for _, a := range []answer{
			s.do("GET", "/ui/session", "", header), s.do("GET", "/v1/admin/reconcile/1", "", header),
			s.do("POST", "/v1/admin/reconcile", "{}", header, csrf),
		} {
			require.Equal(t, http.StatusUnauthorized, a.status, name)
			kind, _ := a.problem(t)
			require.Equal(t, "unauthorized", kind)
		}
	}
	require.Equal(t, http.StatusOK, s.do("GET", "/ui/session", "", "Cookie: duebox_session="+s.server.Session("ann", time.Now().Add(time.Minute))).status)
	require.Zero(t, s.number("SELECT COUNT(*) FROM outbox_reconcile_runs"))
}

func flipped(text string) string {
	return string(text[0]^1) + text[1:]
}

// What a browser adds by itself, the cookie, is not enough to change something.
func TestSession_WritesNeedWhatAnotherPageCannotKnow(t *testing.T) {
	t.Parallel()
	s := newShop(t, guarded())
	cookie, csrf := s.login("ann")
	_, others := s.login("ann")
	for name, header := range map[string][]string{
		"no token":                    {cookie},
		"an empty token":              {cookie, "X-CSRF-Token: "},
		"a token of another session":  {cookie, others},
		"another site":                {cookie, csrf, "Sec-Fetch-Site: cross-site"},
		"another host of this domain": {cookie, csrf, "Sec-Fetch-Site: same-site"},
		"another origin":              {cookie, csrf, "Origin: https://elsewhere.example"},
	} {
		a := s.do("POST", "/v1/admin/reconcile", "{}", header...)
		require.Equal(t, http.StatusForbidden, a.status, name)
		kind, _ := a.problem(t)
		require.Equal(t, "forged-request", kind)
	}
	require.Zero(t, s.number("SELECT COUNT(*) FROM outbox_reconcile_runs"))
	require.Equal(t, http.StatusAccepted, s.do("POST", "/v1/admin/reconcile", "{}", cookie, csrf,
		"Sec-Fetch-Site: same-origin", "Origin: http://localhost:8080").status)
}

func TestSession_LoginIsStrict(t *testing.T) {
	t.Parallel()
	s := newShop(t, guarded())
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Origin: https://elsewhere.example"} {
		a := s.do("POST", "/ui/session", `{"token":"admin-token","name":"ann"}`, header)
		require.Equal(t, http.StatusForbidden, a.status)
		require.Empty(t, a.header.Get("Set-Cookie"))
	}
	form := s.do("POST", "/ui/session", `{"token":"admin-token","name":"ann"}`, "Content-Type: text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, form.status, "what a form of another page can send")
	for _, name := range []string{"", " ann", "a\u0000b", "a\nb", "\u202egnp", strings.Repeat("ü", 65)} {
		body, err := json.Marshal(map[string]string{"token": "admin-token", "name": name})
		require.NoError(t, err)
		a := s.do("POST", "/ui/session", string(body))
		require.Equal(t, http.StatusBadRequest, a.status, "%q", name)
	}

	s = newShop(t, guarded())
	var refused answer
	for range 11 {
		refused = s.do("POST", "/ui/session", `{"token":"admin-tokem","name":"ann"}`)
		if refused.status != http.StatusForbidden {
			break
		}
		kind, _ := refused.problem(t)
		require.Equal(t, "wrong-token", kind)
	}
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	kind, _ := refused.problem(t)
	require.Equal(t, "too-many-requests", kind)
	require.Regexp(t, `^([1-9]|10)$`, refused.header.Get("Retry-After"))
	require.Equal(t, http.StatusTooManyRequests, s.do("POST", "/ui/session", `{"token":"admin-token","name":"ann"}`).status, "the right one too")
	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/admin/reconcile/1", "", "Authorization: Bearer admin-token").status, "the token itself still does")
}

func TestSession_WithoutAnAdminToken(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	a := s.do("GET", "/ui/session", "")
	require.Equal(t, http.StatusOK, a.status)
	who := a.json(t)
	require.NotEmpty(t, who["csrf"])
	delete(who, "csrf")
	require.Equal(t, map[string]any{"name": "local", "login_required": false}, who)
	login := s.do("POST", "/ui/session", `{"token":"","name":"ann"}`)
	require.Equal(t, http.StatusConflict, login.status)
	require.Empty(t, login.header.Get("Set-Cookie"))

	shut := newShop(t, api.Config{APIToken: "api-token"})
	require.Equal(t, http.StatusForbidden, shut.do("GET", "/ui/session", "").status)
}

func TestPage_IsShownByNobodyElse(t *testing.T) {
	t.Parallel()
	s := newShop(t, guarded())
	h := s.do("GET", "/ui/session", "").header
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'none'; frame-ancestors 'none'; base-uri 'none'", h.Get("Content-Security-Policy"))
	require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
	require.Equal(t, "DENY", h.Get("X-Frame-Options"))
	require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
	require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"))
	require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
}
