package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/duebox/duebox/internal/tracing"
	"github.com/duebox/duebox/outbox"
)

const (
	foreign = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	state   = "a=b"
)

func inMemory(t *testing.T) (*tracetest.InMemoryExporter, trace.Tracer) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	return spans, provider.Tracer("test")
}

// taker confirms all but what has no key.
type taker struct{ got []outbox.Publication }

func (p *taker) Publish(_ context.Context, batch []outbox.Publication) []outbox.Receipt {
	p.got = append(p.got, batch...)
	receipts := make([]outbox.Receipt, len(batch))
	for i, m := range batch {
		if m.Key == "" {
			receipts[i].Err = outbox.ErrNacked
		}
	}
	return receipts
}

func TestMessages_AreOneTraceFromTheEnqueueToTheEffect(t *testing.T) {
	t.Parallel()
	spans, tracer := inMemory(t)
	ctx, request := tracer.Start(t.Context(), "request")
	own := map[string]string{"lang": "de"}
	headers, done := tracing.Enqueuing(tracer)(ctx, outbox.Message{Topic: "a", Key: "1", Headers: own})
	done(7, nil)
	request.End()
	require.Equal(t, map[string]string{"lang": "de"}, own, "the caller's map stays as it is")
	require.Equal(t, "de", headers["lang"])
	require.True(t, outbox.ValidTraceparent(headers["traceparent"]))

	// Hours later, in another process.
	p := &taker{}
	tracing.Publisher(tracer, p).Publish(t.Context(), []outbox.Publication{{ID: 7, Topic: "a", Key: "1", Headers: headers}, {ID: 8, Topic: "a"}})
	ctx, delivered := tracing.Deliver(t.Context(), tracer, outbox.Delivery{ID: 7, Topic: "a", Headers: p.got[0].Headers})
	_, ended := tracing.Effect(tracer, "a", []context.Context{ctx})
	ended(errors.New("no stock"))
	delivered(outbox.Result{Outcome: outbox.OutcomeRetry})

	byName := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		if s.Name != "publish a" || s.Parent.IsValid() {
			byName[s.Name] = s
			require.Equal(t, request.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
			continue
		}
		require.Equal(t, codes.Error, s.Status.Code, "nacked, in a trace of its own")
	}
	for child, parent := range map[string]string{"enqueue a": "request", "publish a": "enqueue a", "deliver a": "publish a", "effect a": "deliver a"} {
		require.Equal(t, byName[parent].SpanContext.SpanID(), byName[child].Parent.SpanID(), child)
	}
	require.Equal(t, codes.Error, byName["effect a"].Status.Code)
	require.Len(t, spans.GetSpans(), 6)
}

// A message that names a trace which is not the request's stays in it.
func TestEnqueuing_KeepsTheMessagesOwnTrace(t *testing.T) {
	t.Parallel()
	spans, tracer := inMemory(t)
	ctx, request := tracer.Start(t.Context(), "request")
	defer request.End()
	headers, done := tracing.Enqueuing(tracer)(ctx, outbox.Message{Topic: "a", Headers: map[string]string{"traceparent": foreign, "tracestate": state}})
	done(0, outbox.ErrDuplicateKey)
	require.Equal(t, foreign[:36], headers["traceparent"][:36])
	require.NotEqual(t, foreign, headers["traceparent"], "it goes on from the enqueue")
	require.Equal(t, state, headers["tracestate"])
	require.Equal(t, codes.Error, spans.GetSpans()[0].Status.Code)
}

// Without tracing a message's headers are its own, and what names a trace passes through.
func TestMessages_WithoutTracing(t *testing.T) {
	t.Parallel()
	tracer := noop.NewTracerProvider().Tracer("")
	headers, done := tracing.Enqueuing(tracer)(t.Context(), outbox.Message{Topic: "a"})
	done(1, nil)
	require.Nil(t, headers)
	own := map[string]string{"traceparent": foreign}
	headers, done = tracing.Enqueuing(tracer)(t.Context(), outbox.Message{Topic: "a", Headers: own})
	done(1, nil)
	require.Equal(t, own, headers)
	p := &taker{}
	tracing.Publisher(tracer, p).Publish(t.Context(), []outbox.Publication{{Topic: "a", Headers: own}, {Topic: "a"}})
	require.Equal(t, own, p.got[0].Headers)
	require.Nil(t, p.got[1].Headers)
}

func TestHandler_AddsTheTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(tracing.NewHandler(slog.NewJSONHandler(&out, nil))).With(slog.Int("id", 7))
	log.InfoContext(tracing.From(t.Context(), map[string]string{"traceparent": foreign}), "in a trace")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", line["trace_id"])
	require.Equal(t, "b7ad6b7169203331", line["span_id"])
	require.InDelta(t, 7, line["id"], 0)
	out.Reset()
	log.InfoContext(t.Context(), "in none")
	require.NotContains(t, out.String(), "trace_id")
}
