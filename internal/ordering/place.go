package ordering

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Place reserves stock, writes the order, the message that will close it at its due time and the one that will remind its buyer before
// that, in one transaction.
//
// A key that is not empty makes the call repeatable for KeyLife: the same user's same draft returns the order as it was
// first returned, another draft model.ErrKeyReused. A call that returned an error used no key.
//
// It returns a *model.InvalidError for a draft that breaks a rule or names an unknown product, and a *model.OutOfStockError;
// nothing is written then.
func (s *Service) Place(ctx context.Context, d model.Draft, key string) (model.Order, error) {
	if err := d.Validate(); err != nil {
		return model.Order{}, err
	}
	if key != "" && !model.ValidKey(key) {
		return model.Order{}, model.Invalid("Idempotency-Key", model.KeyRule)
	}
	return run(ctx, s, "place order", func(ctx context.Context) (o model.Order, err error) {
		no, err := newNo()
		if err != nil {
			return o, err
		}
		fresh := false
		err = s.tx(ctx, func(tx *gorm.DB) error {
			first := no
			if key != "" {
				if first, err = useKey(tx, d, key, no); err != nil {
					return err
				}
			}
			if fresh = first == no; !fresh {
				o, err = load(tx, first)
				o = o.AsPlaced()
				return err
			}
			o, err = s.place(ctx, tx, no, d)
			return err
		})
		if err == nil && fresh {
			s.happened(Placed, 1)
		}
		return o, err
	})
}

// newNo makes an order number: a UUID of version 7 without dashes, so that numbers sort by time and hold 74 random bits.
func newNo() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make order number: %w", err)
	}
	return strings.ReplaceAll(id.String(), "-", ""), nil
}

// place writes in the order of locks. What can be refused without a write is refused first: a sold-out product costs its
// queue of customers one read each.
func (s *Service) place(ctx context.Context, tx *gorm.DB, no string, d model.Draft) (model.Order, error) {
	now, err := look(tx, d.Items)
	if err != nil {
		return model.Order{}, err
	}
	o := model.Order{
		No: no, Kind: d.Kind, User: d.User, Status: model.Pending, Items: d.Items, Total: d.Total(),
		DueAt: dueAfter(now, s.timeout(d.Kind)), CreatedAt: now,
	}
	o.FirstDueAt = o.DueAt
	id, err := s.enqueue(ctx, tx, model.TopicExpire, no, o.DueAt)
	if err != nil {
		return model.Order{}, err
	}
	o.MessageID = id
	if at, ok := s.remindAt(o.DueAt, now); ok {
		if _, err := s.enqueue(ctx, tx, model.TopicRemind, no, at); err != nil {
			return model.Order{}, err
		}
	}
	_, err = exec(tx, `INSERT INTO orders (no, user_id, kind, total, message_id, due_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		no, o.User, string(o.Kind), o.Total, id, sqlTime(o.DueAt), sqlTime(o.CreatedAt))
	if err != nil {
		return model.Order{}, err
	}
	rows := make([]string, len(o.Items))
	args := make([]any, 0, 5*len(o.Items))
	for i, it := range o.Items {
		rows[i] = "(?, ?, ?, ?, ?)"
		args = append(args, no, i, it.SKU, it.Quantity, it.Price)
	}
	_, err = exec(tx, `INSERT INTO order_items (order_no, item, sku, quantity, price) VALUES `+strings.Join(rows, ", "), args...)
	if err != nil {
		return model.Order{}, err
	}
	return o, move(tx, reserve, no, o.Items)
}

// enqueue writes a message about the order, and returns its id.
func (s *Service) enqueue(ctx context.Context, tx *gorm.DB, topic, no string, due time.Time) (int64, error) {
	m := outbox.Message{
		Topic: topic, Key: no, DueAt: due,
		Payload: model.OrderPayload{No: no}.Encode(), ContentType: model.PayloadType,
	}
	err := s.store.Enqueue(ctx, tx, &m)
	return m.ID, err
}

// look reads the database's clock and refuses what is not on the shelves right now. It locks nothing.
func look(tx *gorm.DB, items []model.Item) (now time.Time, err error) {
	skus := make([]any, len(items))
	for i, it := range items {
		skus[i] = it.SKU
	}
	rows, err := tx.Statement.ConnPool.QueryContext(tx.Statement.Context, `SELECT `+micros("UTC_TIMESTAMP(6)")+` AS now_us, sku, available
		FROM products WHERE sku IN (?`+strings.Repeat(", ?", len(skus)-1)+`)`, skus...)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = rows.Close() }()
	available := make(map[string]int64, len(items))
	for rows.Next() {
		var (
			micros, units int64
			sku           string
		)
		if err := rows.Scan(&micros, &sku, &units); err != nil {
			return time.Time{}, err
		}
		available[sku] = units
		now = fromMicros(micros)
	}
	if err := rows.Err(); err != nil {
		return time.Time{}, err
	}
	var bad model.Faults
	for i, it := range items {
		_, known := available[it.SKU]
		bad.Check(known, fmt.Sprintf("items[%d].sku", i), model.ErrNoProduct.Error())
	}
	if err := bad.Err(); err != nil {
		return time.Time{}, err
	}
	for _, it := range items {
		if available[it.SKU] < it.Quantity {
			return time.Time{}, &model.OutOfStockError{SKU: it.SKU}
		}
	}
	return now, nil
}

// useKey takes the idempotency key for the order no, or returns the number of the order that it was used for. Of two calls
// with one key the second waits here for the first to commit.
func useKey(tx *gorm.DB, d model.Draft, key, no string) (string, error) {
	fingerprint := d.Fingerprint()
	_, err := exec(tx, `INSERT INTO idempotency_keys (user_id, idem_key, fingerprint, order_no, used_at)
		VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6))`, d.User, []byte(key), fingerprint[:], no)
	if err == nil || !isDuplicate(err) {
		return no, err
	}
	var found []struct {
		Fingerprint []byte
		OrderNo     string
		Expired     bool
	}
	err = tx.Raw(`SELECT fingerprint, order_no, used_at <= UTC_TIMESTAMP(6) - INTERVAL ? SECOND AS expired
		FROM idempotency_keys WHERE user_id = ? AND idem_key = ?`, int64(KeyLife/time.Second), d.User, []byte(key)).
		Scan(&found).Error
	if err != nil {
		return "", err
	}
	if len(found) == 0 { // it was forgotten just now
		return "", errAgain
	}
	used := found[0]
	switch {
	case !used.Expired && string(used.Fingerprint) != string(fingerprint[:]):
		return "", model.ErrKeyReused
	case !used.Expired:
		return used.OrderNo, nil
	}
	taken, err := change(tx, `UPDATE idempotency_keys SET fingerprint = ?, order_no = ?, used_at = UTC_TIMESTAMP(6)
		WHERE user_id = ? AND idem_key = ? AND order_no = ?`, fingerprint[:], no, d.User, []byte(key), used.OrderNo)
	if err == nil && !taken {
		err = errAgain
	}
	return no, err
}
