package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/gin-gonic/gin"
)

// observe counts and logs each request once it has been answered. Probes, scrapes, and what the operator's page asks for by itself are logged at
// debug level.
func (s *Server) observe(c *gin.Context) {
	began := time.Now()
	defer func() { // also when a handler aborts the connection
		took := time.Since(began)
		route := c.FullPath()
		s.metrics.observe(c.Request.Method, route, c.Writer.Status(), took)
		level := slog.LevelInfo
		if routine(route) {
			level = slog.LevelDebug
		}
		s.cfg.Log.LogAttrs(c.Request.Context(), level, "http request",
			slog.String("method", c.Request.Method), slog.String("route", route), slog.String("path", shown(c.Request.URL.Path)),
			slog.Int("status", c.Writer.Status()), slog.Float64("took_seconds", took.Seconds()), slog.Int("bytes", max(0, c.Writer.Size())),
			slog.String("remote", c.Request.RemoteAddr), subject(c))
	}()
	c.Next()
}

// routine reports whether programs ask for a route all the time.
func routine(route string) bool {
	switch route {
	case "/metrics", "/v1/admin/overview", "/ui/", "/ui/:file", "/ui/views/:file":
		return true
	}
	return isProbe(route)
}

// recovered answers a panic with a 500 and logs it: one bad request must not end the others.
func (s *Server) recovered(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // asks the server to drop the connection
		}
		s.fail(c, fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack()))
	}()
	c.Next()
}

// deadline bounds the request's work. Reading a body is bounded by the connection's deadlines, so time spent there is not
// taken from it twice.
func (s *Server) deadline(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.cfg.Deadline)
	defer cancel()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}
