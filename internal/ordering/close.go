package ordering

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Cancel closes a pending order for its user, gives its stock back and withdraws its messages, in one transaction. It returns
// the order as it is then, also if it was closed already, and model.ErrPaid if it is paid.
func (s *Service) Cancel(ctx context.Context, no string) (model.Order, error) {
	if !model.ValidID(no) {
		return model.Order{}, model.Invalid("no", model.IDRule)
	}
	return run(ctx, s, "cancel order", func(ctx context.Context) (o model.Order, err error) {
		o, err = load(s.db.WithContext(ctx), no)
		switch {
		case err != nil:
			return o, err
		case o.Status == model.Paid:
			return o, model.ErrPaid
		case o.Status == model.Closed:
			return o, nil
		}
		err = s.tx(ctx, func(tx *gorm.DB) error {
			if err := s.withdraw(ctx, tx, no, model.TopicExpire, model.TopicRemind); err != nil {
				return err
			}
			won, err := closeOrder(tx, no, model.User)
			if err == nil && !won {
				err = errAgain
			}
			if err != nil {
				return err
			}
			if o, err = load(tx, no); err != nil {
				return err
			}
			return move(tx, release, no, o.Items)
		})
		return o, err
	})
}

// Expire is the effect of a message of model.TopicExpire: it closes the order if it is still pending, gives its stock
// back and withdraws its reminder, in the transaction tx, which belongs to the guard that let the effect run. An order that is paid or
// closed stays as it is. Every run is written to the table effects, so that a message which took effect twice can be counted from outside.
//
// Errors for which outbox.IsRetryable holds mean that the transaction must be run again. A payload that cannot be read and an
// order that does not exist are errors too: an operator has to see them.
func (s *Service) Expire(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
	tx = tx.WithContext(ctx)
	no, err := begin(tx, d)
	if err != nil {
		return fmt.Errorf("expire order %s: %w", d.Key, err)
	}
	if err := s.withdraw(ctx, tx, no, model.TopicRemind); err != nil {
		return fmt.Errorf("withdraw reminder of order %s: %w", no, err)
	}
	won, err := closeOrder(tx, no, model.Timeout)
	if err != nil {
		return fmt.Errorf("close order %s: %w", no, err)
	}
	o, err := load(tx, no)
	if err != nil {
		return fmt.Errorf("expire order %s: %w", no, err)
	}
	if !won {
		return nil
	}
	if err := move(tx, release, no, o.Items); err != nil {
		return fmt.Errorf("give back stock of order %s: %w", no, err)
	}
	return nil
}

// begin reads which order an effect is about, and writes the effect down.
func begin(tx *gorm.DB, d outbox.Delivery) (no string, err error) {
	p, err := model.DecodeOrderPayload(d.Payload)
	if err != nil {
		return "", err
	}
	if p.No != d.Key { // the guard has checked the key, nobody the payload
		return "", fmt.Errorf("the payload names order %q", p.No)
	}
	err = tx.Exec(`INSERT INTO effects (message_id, generation, effected_at) VALUES (?, ?, UTC_TIMESTAMP(6))`,
		d.ID, d.Generation).Error
	if err != nil {
		return "", fmt.Errorf("write effect: %w", err)
	}
	return p.No, nil
}

// closeOrder is the compare-and-set from pending to closed.
func closeOrder(tx *gorm.DB, no string, why model.CloseReason) (won bool, err error) {
	return change(tx, `UPDATE orders SET status = 'closed', close_reason = ?, closed_at = UTC_TIMESTAMP(6), version = version + 1
		WHERE no = ? AND status = 'pending'`, string(why), no)
}
