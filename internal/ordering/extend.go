package ordering

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
)

// Extend moves the due time of a pending order, earlier or later, and those of its messages, in one transaction. What is on its
// way with the old due time takes no effect any more. A buyer who was reminded already is reminded again if the new due time is far enough
// ahead; if it is too near for that, not at all. Due is rounded up to the microsecond.
//
// It returns model.ErrNoOrder, a *model.InvalidError if due is not in the future by the database's clock or beyond
// model.MaxExtension, whatever the order's status, and model.ErrPaid or model.ErrClosed; nothing is written then.
func (s *Service) Extend(ctx context.Context, no string, due time.Time) (model.Order, error) {
	if !model.ValidID(no) {
		return model.Order{}, model.Invalid("no", model.IDRule)
	}
	due = ceilMicros(due)
	return run(ctx, s, "extend order", func(ctx context.Context) (o model.Order, err error) {
		now, err := s.mayExtend(ctx, no, due)
		if err != nil {
			return o, err
		}
		err = s.tx(ctx, func(tx *gorm.DB) error {
			made, err := s.reschedule(ctx, tx, model.TopicExpire, no, due)
			if err == nil {
				err = s.moveReminder(ctx, tx, no, due, now)
			}
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
		if err == nil {
			s.happened(Extended, 1)
		}
		return o, err
	})
}

// mayExtend decides by plain reading and returns the database's time. Only "pending" can have changed when it comes to writing.
func (s *Service) mayExtend(ctx context.Context, no string, due time.Time) (now time.Time, err error) {
	var rows []struct {
		Status model.Status
		NowUs  int64
	}
	err = s.db.WithContext(ctx).Raw(`SELECT status, `+micros("UTC_TIMESTAMP(6)")+` AS now_us FROM orders WHERE no = ?`, no).
		Scan(&rows).Error
	switch {
	case err != nil:
		return now, err
	case len(rows) == 0:
		return now, model.ErrNoOrder
	}
	now = fromMicros(rows[0].NowUs)
	if err := model.CheckDue(due, now); err != nil {
		return now, err
	}
	switch rows[0].Status {
	case model.Paid:
		return now, model.ErrPaid
	case model.Closed:
		return now, model.ErrClosed
	case model.Pending:
	}
	return now, nil
}
