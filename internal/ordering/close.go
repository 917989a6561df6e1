package ordering

import (
	"context"
	"fmt"
	"strings"

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
			if err := s.withdraw(ctx, tx, no); err != nil {
				return err
			}
			closed, err := closeOrders(tx, model.User, no)
			if err == nil && closed == 0 {
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
		if err == nil {
			s.happened(ClosedByUser, 1)
		}
		return o, err
	})
}

// Expire is ExpireAll for one message.
func (s *Service) Expire(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
	return s.ExpireAll(ctx, tx, []outbox.Delivery{d})
}

// ExpireAll is the effect of messages of model.TopicExpire: it closes the orders that are still pending and gives their stock back, in the
// transaction tx, which belongs to the guard that let the effect run, with as many statements for a hundred orders as for one and one more
// for each product. An order that is paid or closed stays as it is. A reminder that is later than its order's end finds out by itself.
// Every run is written to the table effects, so that a message which took effect twice can be counted from outside.
//
// Errors for which outbox.IsRetryable holds mean that the transaction must be run again. A payload that cannot be read and an
// order that does not exist are errors too: an operator has to see them.
func (s *Service) ExpireAll(ctx context.Context, tx *gorm.DB, ds []outbox.Delivery) error {
	tx = tx.WithContext(ctx)
	nos, err := begin(tx, ds...)
	if err != nil {
		return fmt.Errorf("expire %s: %w", ordersOf(ds), err)
	}
	pending, err := lockPending(tx, nos)
	if err != nil || len(pending) == 0 {
		return err
	}
	closed, err := closeOrders(tx, model.Timeout, pending...)
	if err != nil {
		return fmt.Errorf("close %s: %w", ordersOf(ds), err)
	}
	lines, err := linesOf(tx, pending)
	if err == nil {
		err = moveLines(tx, release, lines)
	}
	if err != nil {
		return fmt.Errorf("give back stock of %s: %w", ordersOf(ds), err)
	}
	outbox.AfterCommit(tx, func() { s.happened(ClosedByTimeout, closed) })
	return nil
}

// ordersOf names the orders that deliveries are about, for errors.
func ordersOf(ds []outbox.Delivery) string {
	if len(ds) == 1 {
		return "order " + ds[0].Key
	}
	return fmt.Sprintf("order %s and %d others", ds[0].Key, len(ds)-1)
}

// begin reads which orders effects are about, and writes the effects down.
func begin(tx *gorm.DB, ds ...outbox.Delivery) ([]string, error) {
	nos := make([]string, len(ds))
	rows := make([]string, len(ds))
	args := make([]any, 0, 2*len(ds))
	for i, d := range ds {
		p, err := model.DecodeOrderPayload(d.Payload)
		if err != nil {
			return nil, err
		}
		if p.No != d.Key { // the guard has checked the key, nobody the payload
			return nil, fmt.Errorf("the payload names order %q", p.No)
		}
		nos[i] = p.No
		rows[i] = "(?, ?, UTC_TIMESTAMP(6))"
		args = append(args, d.ID, d.Generation)
	}
	err := tx.Exec(`INSERT INTO effects (message_id, generation, effected_at) VALUES `+strings.Join(rows, ", "), args...).Error
	if err != nil {
		return nil, fmt.Errorf("write effect: %w", err)
	}
	return nos, nil
}

// lockPending locks orders, all of which must exist, and returns those that are pending.
func lockPending(tx *gorm.DB, nos []string) (pending []string, err error) {
	var rows []struct{ No, Status string }
	// index: primary
	if err := tx.Raw(`SELECT no, status FROM orders WHERE no IN (?) FOR UPDATE`, nos).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("lock order %s: %w", nos[0], err)
	}
	found := make(map[string]bool, len(rows))
	for _, row := range rows {
		found[row.No] = true
		if row.Status == string(model.Pending) {
			pending = append(pending, row.No)
		}
	}
	for _, no := range nos {
		if !found[no] {
			return nil, fmt.Errorf("expire order %s: %w", no, model.ErrNoOrder)
		}
	}
	return pending, nil
}

// closeOrders is the compare-and-set from pending to closed. It returns how many have won it.
func closeOrders(tx *gorm.DB, why model.CloseReason, nos ...string) (int64, error) {
	// index: primary
	res := tx.Exec(`UPDATE orders SET status = 'closed', close_reason = ?, closed_at = UTC_TIMESTAMP(6), version = version + 1
		WHERE no IN (?) AND status = 'pending'`, string(why), nos)
	return res.RowsAffected, res.Error
}
