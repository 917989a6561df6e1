package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
)

func TestActor_IsWhoTheRequestSays(t *testing.T) {
	t.Parallel()
	server := func(cfg Config) *Server {
		sessions, err := newSessions(cfg.AdminToken)
		require.NoError(t, err)
		return &Server{cfg: cfg, adminToken: newToken(cfg.AdminToken), sessions: sessions}
	}
	guarded, open := server(Config{AdminToken: "admin"}), server(Config{})
	cookie := guarded.sessions.begin("Zoë", time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		of         *Server
		header     map[string]string
		actor, via string
	}{
		"a token":                         {guarded, map[string]string{"Authorization": "Bearer admin"}, "admin", "api"},
		"a token and a name":              {guarded, map[string]string{"Authorization": "Bearer admin", "Duebox-Actor": "night shift/ü"}, "night shift/ü", "api"},
		"a session":                       {guarded, map[string]string{"Cookie": "duebox_session=" + cookie}, "Zoë", "ui"},
		"a session takes no other name":   {guarded, map[string]string{"Cookie": "duebox_session=" + cookie, "Duebox-Actor": "root"}, "Zoë", "ui"},
		"nobody in particular":            {open, nil, "local", "api"},
		"a name without a token":          {open, map[string]string{"Duebox-Actor": "ann"}, "ann", "api"},
		"the page of an unguarded server": {open, map[string]string{"X-CSRF-Token": open.sessions.csrf(session{})}, "local", "ui"},
		"a made-up CSRF token":            {open, map[string]string{"X-CSRF-Token": "x"}, "local", "api"},
	} {
		ctx := request(t, c.header)
		c.of.access(c.of.operator)(ctx)
		require.False(t, ctx.IsAborted(), name)
		actor, via := actorOf(ctx)
		require.Equal(t, [2]string{c.actor, c.via}, [2]string{actor, via}, name)
	}
	for _, name := range []string{"", " a", "a ", "a\tb", "\xff", "a\u200bb", strings.Repeat("a", 65)} {
		_, err := open.operator(request(t, map[string]string{"Duebox-Actor": name}).Request)
		require.ErrorContains(t, err, "Duebox-Actor", "%q", name)
		require.Equal(t, http.StatusBadRequest, describe(err).Status)
	}
}

func request(t *testing.T, header map[string]string) *gin.Context {
	t.Helper()
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/admin/x", nil)
	c.Request.Host = "localhost"
	for k, v := range header {
		c.Request.Header.Set(k, v)
	}
	return c
}
