package tracing

import (
	"context"
	"maps"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/duebox/duebox/outbox"
)

// From returns ctx in the trace that headers name; ctx itself if they name none.
func From(ctx context.Context, headers map[string]string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
}

// into returns a copy of headers that names the span of ctx.
func into(ctx context.Context, headers map[string]string) map[string]string {
	out := maps.Clone(headers)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, outbox.HeaderTracestate) // the span's own follows, if it has one
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(out))
	return out
}

// Enqueuing is meant for outbox.StoreConfig: each enqueue is a span of the request's trace, and the message goes on from there. A message
// that names a trace of its own stays in that one.
func Enqueuing(tracer trace.Tracer) func(ctx context.Context, m outbox.Message) (headers map[string]string, done func(id int64, err error)) {
	return func(ctx context.Context, m outbox.Message) (map[string]string, func(int64, error)) {
		own := trace.SpanContextFromContext(From(ctx, m.Headers))
		if own.IsValid() && own.TraceID() != trace.SpanContextFromContext(ctx).TraceID() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, own)
		}
		ctx, span := tracer.Start(ctx, "enqueue "+m.Topic, trace.WithAttributes(about(m.Topic, m.Key)...))
		headers := m.Headers
		if span.SpanContext().IsValid() {
			headers = into(ctx, headers)
		}
		return headers, func(id int64, err error) {
			span.SetAttributes(attribute.Int64("duebox.message.id", id))
			end(span, err)
		}
	}
}

func about(topic, key string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("messaging.destination.name", topic), attribute.String("duebox.message.key", key)}
}

func end(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Publisher returns next with a span for each publication, from when it is handed over until its outcome is known. What is delivered goes
// on from there.
func Publisher(tracer trace.Tracer, next outbox.Publisher) outbox.Publisher {
	return publisher{tracer, next}
}

type publisher struct {
	tracer trace.Tracer
	next   outbox.Publisher
}

// Publish implements outbox.Publisher.
func (p publisher) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	spans := make([]trace.Span, len(batch))
	for i := range batch {
		m := &batch[i]
		with, span := p.tracer.Start(From(ctx, m.Headers), "publish "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(append(about(m.Topic, m.Key), attribute.String("messaging.system", "rabbitmq"), message(m.Store, m.ID),
				attribute.Int64("duebox.message.id", m.ID), attribute.Int("duebox.message.attempt", m.Attempt))...))
		if span.SpanContext().IsValid() {
			m.Headers = into(with, m.Headers)
		}
		spans[i] = span
	}
	receipts := p.next.Publish(ctx, batch)
	for i, span := range spans {
		err := outbox.ErrUnconfirmed
		if i < len(receipts) {
			err = receipts[i].Err
		}
		end(span, err)
	}
	return receipts
}

// message is the message-id of AMQP.
func message(store string, id int64) attribute.KeyValue {
	return attribute.String("messaging.message.id", store+"-"+strconv.FormatInt(id, 10))
}

// Deliver begins the span of a delivery; end ends it with what became of it.
func Deliver(ctx context.Context, tracer trace.Tracer, d outbox.Delivery) (spanned context.Context, done func(r outbox.Result)) {
	ctx, span := tracer.Start(From(ctx, d.Headers), "deliver "+d.Topic, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(about(d.Topic, d.Key), attribute.String("messaging.system", "rabbitmq"), message(d.Store, d.ID),
			attribute.Int64("duebox.message.id", d.ID), attribute.Int("duebox.message.attempt", d.Attempt))...))
	return ctx, func(r outbox.Result) {
		span.SetAttributes(attribute.String("duebox.outcome", string(r.Outcome)))
		end(span, r.Err)
	}
}

// Effect begins the span of an effect, of those deliveries whose contexts are given: each is in a trace of its own.
func Effect(tracer trace.Tracer, topic string, ctxs []context.Context) (spanned []context.Context, done func(err error)) {
	spanned = make([]context.Context, len(ctxs))
	spans := make([]trace.Span, len(ctxs))
	for i, ctx := range ctxs {
		spanned[i], spans[i] = tracer.Start(ctx, "effect "+topic, trace.WithAttributes(attribute.Int("duebox.effect.messages", len(ctxs))))
	}
	return spanned, func(err error) {
		for _, span := range spans {
			end(span, err)
		}
	}
}
