package ordering

import (
	"context"
	"errors"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Pay records a payment and returns the order as it is then. A pending order becomes paid, and its messages are withdrawn in
// the same transaction; for a paid or closed order the money is recorded together with its refund. The same payment again changes
// nothing.
//
// It returns a *model.InvalidError, model.ErrNoOrder, model.ErrWrongAmount if the amount is not the order's total, whatever
// its status, and model.ErrPaymentTaken; nothing is written then.
func (s *Service) Pay(ctx context.Context, no string, p model.Payment) (model.Order, error) {
	if !model.ValidID(no) {
		return model.Order{}, model.Invalid("no", model.IDRule)
	}
	if err := p.Validate(); err != nil {
		return model.Order{}, err
	}
	return run(ctx, s, "pay order", func(ctx context.Context) (model.Order, error) {
		verdict, err := s.judge(ctx, no, p)
		if err != nil {
			return model.Order{}, err
		}
		switch verdict {
		case model.Accepted:
			return s.accept(ctx, no, p)
		case model.Returned:
			return s.giveBack(ctx, no, p)
		case model.Repeated, model.Refused:
		}
		return load(s.db.WithContext(ctx), no)
	})
}

// judge decides by plain reading. Only "pending" can have changed when it comes to writing: totals and recorded payments
// never change, and the other statuses are final.
func (s *Service) judge(ctx context.Context, no string, p model.Payment) (model.Verdict, error) {
	var rows []struct {
		Status  model.Status
		Total   int64
		PaidFor string
	}
	err := s.db.WithContext(ctx).Raw(`SELECT o.status, o.total, COALESCE(p.order_no, '') AS paid_for
		FROM orders o LEFT JOIN payments p ON p.payment_id = ? WHERE o.no = ?`, p.ID, no).Scan(&rows).Error
	switch {
	case err != nil:
		return model.Refused, err
	case len(rows) == 0:
		return model.Refused, model.ErrNoOrder
	}
	return model.Judge(no, rows[0].Status, rows[0].Total, p, rows[0].PaidFor)
}

func (s *Service) accept(ctx context.Context, no string, p model.Payment) (o model.Order, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		if err := s.withdraw(ctx, tx, no); err != nil {
			return err
		}
		won, err := change(tx, `UPDATE orders SET status = 'paid', paid_at = UTC_TIMESTAMP(6), version = version + 1
			WHERE no = ? AND status = 'pending'`, no)
		if err == nil && !won {
			err = errAgain
		}
		if err != nil {
			return err
		}
		if err := record(tx, no, p); err != nil {
			return err
		}
		if o, err = load(tx, no); err != nil {
			return err
		}
		return move(tx, sell, no, o.Items)
	})
	if err == nil {
		s.happened(Paid, 1)
	}
	return o, err
}

// giveBack needs no lock on the order: its status is final.
func (s *Service) giveBack(ctx context.Context, no string, p model.Payment) (o model.Order, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		if err := record(tx, no, p); err != nil {
			return err
		}
		err := tx.Exec(`INSERT INTO refunds (payment_id, order_no, amount, recorded_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))`,
			p.ID, no, p.Amount).Error
		if err != nil {
			return err
		}
		o, err = load(tx, no)
		return err
	})
	if err == nil {
		s.happened(Refunded, 1)
	}
	return o, err
}

// record writes the payment down; errAgain if its id was recorded meanwhile, for this order or another.
func record(tx *gorm.DB, no string, p model.Payment) error {
	err := tx.Exec(`INSERT INTO payments (payment_id, order_no, amount, received_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))`,
		p.ID, no, p.Amount).Error
	if isDuplicate(err) {
		return errAgain
	}
	return err
}

// withdraw takes back the messages of an order that ends, in the order of locks. That there is none means nothing: it may be taking effect
// right now, and the compare-and-set that follows finds out.
//
// Where no reminders are made none is looked for. One that an earlier setting has left behind meets an order that is not pending then, and
// Remind leaves that as it is.
func (s *Service) withdraw(ctx context.Context, tx *gorm.DB, no string) error {
	err := s.takeBack(ctx, tx, model.TopicExpire, no)
	if err == nil && s.cfg.RemindBefore > 0 {
		err = s.takeBack(ctx, tx, model.TopicRemind, no)
	}
	return err
}

// takeBack withdraws a message of the order if there is one.
func (s *Service) takeBack(ctx context.Context, tx *gorm.DB, topic, no string) error {
	err := s.store.Cancel(ctx, tx, topic, no)
	if errors.Is(err, outbox.ErrNoMessage) {
		return nil
	}
	return err
}
