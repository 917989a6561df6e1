package ordering

import (
	"context"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
)

// Order reads an order; model.ErrNoOrder if there is none.
func (s *Service) Order(ctx context.Context, no string) (model.Order, error) {
	if !model.ValidID(no) {
		return model.Order{}, model.Invalid("no", model.IDRule)
	}
	return run(ctx, s, "read order", func(ctx context.Context) (model.Order, error) {
		return load(s.db.WithContext(ctx), no)
	})
}

// Orders reads the orders that f picks, the newest first. If there are more, next is the After of the next page, else empty.
// Orders that are placed while somebody pages do not move what comes after.
func (s *Service) Orders(ctx context.Context, f model.OrderFilter) (orders []model.Order, next string, err error) {
	if err := f.Validate(); err != nil {
		return nil, "", err
	}
	// index: by_user, by_user_status, by_status or primary, each in the order of no
	where, args := `1 = 1`, []any{}
	for _, part := range []struct{ sql, value string }{
		{` AND user_id = ?`, f.User},
		{` AND status = ?`, string(f.Status)},
		{` AND no < ?`, f.After},
	} {
		if part.value != "" {
			where += part.sql
			args = append(args, part.value)
		}
	}
	args = append(args, f.Limit+1)
	orders, err = run(ctx, s, "list orders", func(ctx context.Context) ([]model.Order, error) {
		return loadAll(s.db.WithContext(ctx), where+` ORDER BY no DESC LIMIT ?`, args...)
	})
	if len(orders) > f.Limit {
		orders = orders[:f.Limit]
		next = orders[f.Limit-1].No
	}
	return orders, next, err
}

func load(tx *gorm.DB, no string) (model.Order, error) {
	orders, err := loadAll(tx, `no = ?`, no)
	if err != nil {
		return model.Order{}, err
	}
	if len(orders) == 0 {
		return model.Order{}, model.ErrNoOrder
	}
	return orders[0], nil
}

// loadAll reads the orders of a WHERE with all their items in one round trip, the newest first.
func loadAll(tx *gorm.DB, where string, args ...any) ([]model.Order, error) {
	var rows []struct {
		No, Kind, UserID, Status, CloseReason string
		MessageID, Total, Refunded            int64
		DueUs, FirstDueUs, CreatedUs          int64
		RemindedUs, PaidUs, ClosedUs          *int64
		SKU                                   string
		Quantity, Price                       int64
	}
	err := tx.Raw(`SELECT o.*, i.sku, i.quantity, i.price FROM (
			SELECT no, message_id, kind, user_id, status, COALESCE(close_reason, '') AS close_reason, total,
				(SELECT COALESCE(SUM(amount), 0) FROM refunds WHERE order_no = orders.no) AS refunded,
				`+micros("due_at")+` AS due_us, `+micros("COALESCE(first_due_at, due_at)")+` AS first_due_us, `+micros("created_at")+` AS created_us,
				`+micros("reminded_at")+` AS reminded_us, `+micros("paid_at")+` AS paid_us, `+micros("closed_at")+` AS closed_us
			FROM orders WHERE `+where+`
		) AS o JOIN order_items AS i ON i.order_no = o.no ORDER BY o.no DESC, i.item`, args...).Scan(&rows).Error
	if err != nil {
		return nil, err
	}
	orders := []model.Order{}
	for _, row := range rows {
		if len(orders) == 0 || orders[len(orders)-1].No != row.No {
			orders = append(orders, model.Order{
				No: row.No, MessageID: row.MessageID, Kind: model.Kind(row.Kind), User: row.UserID, Status: model.Status(row.Status),
				CloseReason: model.CloseReason(row.CloseReason), Total: row.Total, Refunded: row.Refunded,
				DueAt: fromMicros(row.DueUs), FirstDueAt: fromMicros(row.FirstDueUs), CreatedAt: fromMicros(row.CreatedUs),
				RemindedAt: fromNullable(row.RemindedUs), PaidAt: fromNullable(row.PaidUs), ClosedAt: fromNullable(row.ClosedUs),
			})
		}
		o := &orders[len(orders)-1]
		o.Items = append(o.Items, model.Item{SKU: row.SKU, Quantity: row.Quantity, Price: row.Price})
	}
	return orders, nil
}
