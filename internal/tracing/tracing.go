// Package tracing makes one trace of what happens to a message, hours apart and in several processes: the request that has it
// enqueued, the enqueue, each publication, each delivery and each effect. The trace travels in the message's headers traceparent and
// tracestate, in the ledger and on the wire.
//
// It is off unless the environment names an OTLP endpoint. It promises that nothing waits for that endpoint: spans that it does not take
// are dropped.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

const (
	scope = "github.com/duebox/duebox"
	// How long handing over the last spans may take when a process ends.
	closeLimit = 3 * time.Second
	quiet      = time.Minute // between two lines about spans that could not be handed over
)

// Start returns a tracer as the standard variables OTEL_* say, and a function that hands over the last spans and ends it, within
// seconds. Without OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, with OTEL_SDK_DISABLED=true and with OTEL_TRACES_EXPORTER=none
// the tracer does nothing. Spans go there as OTLP over HTTP (protobuf); another OTEL_EXPORTER_OTLP_PROTOCOL is an error.
//
// It does no I/O. What cannot be handed over is told to log now and then; for that it sets the error handler of package otel, of which
// there is one in a process.
func Start(ctx context.Context, service, version string, log *slog.Logger) (tracer trace.Tracer, stop func(), err error) {
	if !wanted() {
		return noop.NewTracerProvider().Tracer(scope), func() {}, nil
	}
	const protocol = "http/protobuf"
	if p := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), protocol); p != protocol {
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: is %.40q, want %s", p, protocol)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithFromEnv()) // last: OTEL_SERVICE_NAME counts
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: log})
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	stop = func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_ = provider.Shutdown(ending) // what is left by then is lost, as it may be
	}
	return provider.Tracer(scope), stop, nil
}

func wanted() bool {
	return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") && os.Getenv("OTEL_TRACES_EXPORTER") != "none" &&
		cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// complaints logs, now and then, that spans could not be handed over.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	next time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.next) {
		c.next = now.Add(quiet)
		c.log.Warn("spans are not handed over", slog.Any("error", err))
	}
}
