package ordering

import (
	"context"
	"errors"
	"fmt"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Protect is for outbox.OperatorConfig: while an order is pending, nobody cancels or moves the message that closes it, or fires it before
// its time. The order is what was promised to its buyer, so it is canceled or extended, and its message follows; the other way round an
// audit would find a fault and undo it. A message that is late can be published now, a dead one requeued, and what closes no pending order
// is not protected; neither are reminders, which keep no order from its end.
func (s *Service) Protect(ctx context.Context, c outbox.Command, r outbox.Record) error {
	if r.Topic != model.TopicExpire || c.Action == outbox.ActRequeue {
		return nil
	}
	o, err := run(ctx, s, "look at an order", func(ctx context.Context) (orderState, error) {
		return s.orderState(s.db.WithContext(ctx), r.Key, "")
	})
	if err != nil || o.Status != model.Pending {
		return err
	}
	instead := ""
	switch c.Action {
	case outbox.ActPublishNow:
		now, err := s.store.Now(ctx)
		if err != nil || !r.DueAt.After(now) {
			return err
		}
		instead = fmt.Sprintf("it can be paid until %s: to close it before, cancel the order", r.DueAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	case outbox.ActReschedule:
		instead = "move the order's due time instead"
	case outbox.ActCancel:
		instead = "cancel the order instead"
	case outbox.ActRequeue:
	}
	return &outbox.ProtectedError{Err: errors.New("order " + r.Key + " is pending and this message closes it; " + instead)}
}
