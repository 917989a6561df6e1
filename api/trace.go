package api

import (
	"cmp"
	"log/slog"
	"strings"

	"github.com/gin-gonic/gin"
	otelattr "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traced makes a span of each request but probes and scrapes, named by its route, in the caller's trace if there is one. The log has its id
// then.
func (s *Server) traced(c *gin.Context) {
	route := c.FullPath()
	if route == "/healthz" || route == "/readyz" || route == "/metrics" {
		return
	}
	ctx := propagation.TraceContext{}.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
	ctx, span := s.cfg.Tracer.Start(ctx, c.Request.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(otelattr.String("http.request.method", c.Request.Method), otelattr.String("http.route", route)))
	defer func() { // also when a handler aborts the connection
		status := c.Writer.Status()
		span.SetAttributes(otelattr.Int("http.response.status_code", status))
		if status >= 500 {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}

// What a request turned out to be about, for the log.
const (
	aboutOrder   = "duebox.order"
	aboutMessage = "duebox.message"
)

// subject names the order and the message that a request is about, as far as they are known: by its path, or from its answer.
func subject(c *gin.Context) slog.Attr {
	order, message := cmp.Or(c.GetString(aboutOrder), c.Param("no")), c.GetString(aboutMessage)
	if route := c.FullPath(); message == "" && (strings.Contains(route, "/messages/") || strings.Contains(route, "/deliveries/")) {
		message = c.Param("id")
	}
	var attrs []any
	if order != "" {
		attrs = append(attrs, slog.String("order", shown(order)))
	}
	if message != "" {
		attrs = append(attrs, slog.String("message_id", shown(message)))
	}
	return slog.Group("", attrs...) // inline
}
