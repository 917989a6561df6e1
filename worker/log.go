package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/duebox/duebox/internal/tracing"
	"github.com/duebox/duebox/outbox"
)

// quiet is how long lines of a kind are counted after one of them was written, so that a broken deploy or a database that is away
// does not flood the log.
const quiet = 10 * time.Second

// repeats counts lines that are not written. The zero value is ready to use.
type repeats struct {
	mu   sync.Mutex
	last map[string]repeat // by kind: there are only a few
}

type repeat struct {
	written time.Time
	held    int // since then
}

// pass returns log for a line of the kind, with the number of those that were held back, or a log that drops it.
func (r *repeats) pass(kind string, log *slog.Logger) *slog.Logger {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]repeat{}
	}
	last, ok := r.last[kind]
	if ok && now.Sub(last.written) < quiet {
		last.held++
		r.last[kind] = last
		return slog.New(slog.DiscardHandler)
	}
	r.last[kind] = repeat{written: now}
	if last.held > 0 {
		log = log.With(slog.Int("similar", last.held))
	}
	return log
}

// lacksTables tells whether err says that the database lacks tables, and writes that now and then: all parts of the worker have the
// same trouble then.
func (w *Worker) lacksTables(ctx context.Context, err error) bool {
	if err = orNoTables(err); !errors.Is(err, errNoTables) {
		return false
	}
	w.repeats.pass("tables", w.log).WarnContext(ctx, "waiting for the database's tables", slog.Any("error", err))
	return true
}

// logAttempted writes why a delivery came to no effect: for every message that is dead, and else now and then for each topic.
func (w *Worker) logAttempted(d outbox.Delivery, outcome outbox.Outcome, why string) {
	ctx := tracing.From(context.Background(), d.Headers)
	attrs := []any{
		slog.Int64("id", d.ID), slog.String("topic", d.Topic), slog.String("key", d.Key), slog.Int("attempt", d.Attempt), slog.String("error", why),
	}
	if outcome == outbox.OutcomeDead {
		w.log.ErrorContext(ctx, "message is dead and waits for an operator", attrs...)
		return
	}
	w.repeats.pass("retry "+d.Topic, w.log).WarnContext(ctx, "delivery had no effect, its message is tried again", attrs...)
}

// logResult writes what became of a delivery that is dealt with.
func (w *Worker) logResult(ctx context.Context, d outbox.Delivery, r outbox.Result) {
	if r.Err != nil {
		return
	}
	w.logHandled(ctx, d, r.Outcome)
	w.logForeign(ctx, d)
	w.logBusy(ctx, d, r.Outcome)
}

// logHandled writes the delivery's line of level debug, with its lateness where it took effect.
func (w *Worker) logHandled(ctx context.Context, d outbox.Delivery, outcome outbox.Outcome) {
	if !w.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{
		slog.Int64("id", d.ID), slog.String("topic", d.Topic), slog.String("key", d.Key), slog.String("outcome", string(outcome)),
	}
	if outcome == outbox.OutcomeDone {
		if now, err := w.store.Now(ctx); err == nil {
			attrs = append(attrs, slog.Float64("lateness_seconds", now.Sub(d.DueAt).Seconds()))
		}
	}
	w.log.LogAttrs(ctx, slog.LevelDebug, "delivery handled", attrs...)
}

// logForeign says, now and then, that a delivery is of another ledger. It has been kept.
func (w *Worker) logForeign(ctx context.Context, d outbox.Delivery) {
	if ours, err := w.store.StoreID(ctx); err != nil || d.Store == ours {
		return
	}
	w.repeats.pass("foreign", w.log).LogAttrs(ctx, slog.LevelWarn,
		"deliveries of another ledger arrive and are kept: two installations share NAMESPACE, or the database was replaced",
		slog.String("namespace", w.cfg.Namespace), slog.String("topic", d.Topic), slog.String("store", d.Store), slog.Int64("id", d.ID))
}

// logBusy says, now and then, that somebody holds messages locked that have come due.
func (w *Worker) logBusy(ctx context.Context, d outbox.Delivery, outcome outbox.Outcome) {
	if outcome != outbox.OutcomeBusy {
		return
	}
	w.repeats.pass("busy", w.log).LogAttrs(ctx, slog.LevelWarn,
		"a transaction that stays open, or a worker that stands still, has a message locked that is due; the reconciler sends it again",
		slog.Int64("id", d.ID), slog.String("topic", d.Topic), slog.String("key", d.Key))
}
