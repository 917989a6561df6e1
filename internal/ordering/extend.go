package ordering

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Extend moves the due time of a pending order, earlier or later, and that of its message, in one transaction. What is on its
// way with the old due time takes no effect any more. Due is rounded up to the microsecond.
//
// It returns model.ErrNoOrder, a *model.InvalidError if due is not in the future by the database's clock or beyond
// model.MaxExtension, whatever the order's status, and model.ErrPaid or model.ErrClosed; nothing is written then.
func (s *Service) Extend(ctx context.Context, no string, due time.Time) (model.Order, error) {
	if !model.ValidID(no) {
		return model.Order{}, model.Invalid("no", model.IDRule)
	}
	due = ceilMicros(due)
	return run(ctx, s, "extend order", func(ctx context.Context) (o model.Order, err error) {
		if err := s.mayExtend(ctx, no, due); err != nil {
			return o, err
		}
		err = s.tx(ctx, func(tx *gorm.DB) error {
			made, err := s.reschedule(ctx, tx, no, due)
			if err != nil {
				return err
			}
			// first_due_at is set before due_at: MySQL assigns from left to right.
			won, err := change(tx, `UPDATE orders SET
					first_due_at = COALESCE(first_due_at, due_at), due_at = ?, message_id = IF(? > 0, ?, message_id), version = version + 1
				WHERE no = ? AND status = 'pending'`, sqlTime(due), made, made, no)
			if err == nil && !won {
				err = errAgain
			}
			if err != nil {
				return err
			}
			o, err = load(tx, no)
			return err
		})
		return o, err
	})
}

// mayExtend decides by plain reading. Only "pending" can have changed when it comes to writing.
func (s *Service) mayExtend(ctx context.Context, no string, due time.Time) error {
	var rows []struct {
		Status model.Status
		NowUs  int64
	}
	err := s.db.WithContext(ctx).Raw(`SELECT status, `+micros("UTC_TIMESTAMP(6)")+` AS now_us FROM orders WHERE no = ?`, no).
		Scan(&rows).Error
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return model.ErrNoOrder
	}
	if err := model.CheckDue(due, fromMicros(rows[0].NowUs)); err != nil {
		return err
	}
	switch rows[0].Status {
	case model.Paid:
		return model.ErrPaid
	case model.Closed:
		return model.ErrClosed
	case model.Pending:
	}
	return nil
}

// reschedule moves the order's message. If it has none, it is taking effect right now, and the compare-and-set that follows
// finds out; or it is missing, and is made here, before the order is locked: made is its id, else 0.
func (s *Service) reschedule(ctx context.Context, tx *gorm.DB, no string, due time.Time) (made int64, err error) {
	err = s.store.Reschedule(ctx, tx, model.TopicExpire, no, due)
	if !errors.Is(err, outbox.ErrNoMessage) {
		return 0, err
	}
	made, err = s.enqueue(ctx, tx, no, due)
	if errors.Is(err, outbox.ErrDuplicateKey) {
		err = errAgain
	}
	return made, err
}
