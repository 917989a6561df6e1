package worker

import (
	"context"

	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/tracing"
	"github.com/duebox/duebox/outbox"
)

// handle brings a delivery to its outcome: guard and effect in one transaction, seen in its trace and in the log.
func (w *Worker) handle(ctx context.Context, d outbox.Delivery, effect Effect) error {
	ctx, delivered := tracing.Deliver(ctx, w.cfg.Tracer, d)
	outcome, err := w.store.Handle(ctx, d, func(tx *gorm.DB) error {
		ctxs, ended := tracing.Effect(w.cfg.Tracer, d.Topic, []context.Context{ctx})
		err := effect(ctxs[0], tx, d) //nolint:contextcheck // it is made of ctx
		ended(err)
		return err
	})
	r := outbox.Result{Outcome: outcome, Err: err}
	w.logResult(ctx, d, r)
	delivered(r)
	return err
}

// handleBatch does the same for many, each of which is in a trace of its own; the effect's context is in none of them, unless it has one
// message.
func (w *Worker) handleBatch(ctx context.Context, ds []outbox.Delivery, effect BatchEffect) []error {
	delivered := make([]func(outbox.Result), len(ds))
	of := make([]context.Context, len(ds))
	byID := make(map[int64]context.Context, len(ds))
	for i, d := range ds {
		of[i], delivered[i] = tracing.Deliver(ctx, w.cfg.Tracer, d)
		byID[d.ID] = of[i]
	}
	results := w.store.HandleBatch(ctx, ds, func(tx *gorm.DB, ds []outbox.Delivery) error {
		ctxs := make([]context.Context, len(ds))
		for i, d := range ds {
			ctxs[i] = byID[d.ID]
		}
		ctxs, ended := tracing.Effect(w.cfg.Tracer, ds[0].Topic, ctxs)
		within := ctx //nolint:contextcheck // those of the deliveries are made of it
		if len(ds) == 1 {
			within = ctxs[0]
		}
		err := effect(within, tx, ds)
		ended(err)
		return err
	})
	errs := make([]error, len(ds))
	for i, r := range results {
		w.logResult(of[i], ds[i], r) //nolint:contextcheck // it is made of ctx
		delivered[i](r)
		errs[i] = r.Err
	}
	return errs
}
