package ordering

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
)

// direction is how units move between a product's three numbers; it is what a stock movement is called.
type direction string

const (
	reserve direction = "reserve" // available -> reserved
	release direction = "release" // reserved -> available
	sell    direction = "sell"    // reserved -> sold
)

func (d direction) delta(quantity int64) (available, reserved, sold int64) {
	switch d {
	case reserve:
		return -quantity, quantity, 0
	case release:
		return quantity, -quantity, 0
	case sell:
	}
	return 0, -quantity, quantity
}

// move moves the units of an order's items and writes why. It must be a transaction's last step: a product's row is locked
// from here to the commit, and products are locked by SKU.
func move(tx *gorm.DB, d direction, no string, items []model.Item) error {
	// Values and not INSERT ... SELECT: for that MariaDB locks the whole table's counter until the statement ends, and every
	// order waits for every other. The key "once" refuses a second movement of an item in one direction.
	rows := make([]string, len(items))
	args := make([]any, 0, 5*len(items))
	for i, it := range items {
		rows[i] = "(?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
		args = append(args, it.SKU, no, i, string(d), it.Quantity)
	}
	err := tx.Exec(`INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at)
		VALUES `+strings.Join(rows, ", "), args...).Error
	if err != nil {
		return err
	}
	items = slices.SortedFunc(slices.Values(items), func(a, b model.Item) int { return cmp.Compare(a.SKU, b.SKU) })
	for _, it := range items {
		available, reserved, sold := d.delta(it.Quantity)
		moved, err := change(tx, `UPDATE products SET available = available + ?, reserved = reserved + ?, sold = sold + ?
			WHERE sku = ? AND available + ? >= 0 AND reserved + ? >= 0`, available, reserved, sold, it.SKU, available, reserved)
		switch {
		case err != nil:
			return err
		case !moved && d == reserve:
			return &model.OutOfStockError{SKU: it.SKU}
		case !moved:
			return fmt.Errorf("%s %d of product %s for order %s: fewer units are reserved", d, it.Quantity, it.SKU, no)
		}
	}
	return nil
}

// SetStock makes the product if it is new, and sets its name and available units; the difference is written as an
// adjustment. It returns a *model.InvalidError if a rule is broken.
func (s *Service) SetStock(ctx context.Context, want model.Stocking) (model.Product, error) {
	if err := want.Validate(); err != nil {
		return model.Product{}, err
	}
	return run(ctx, s, "set stock", func(ctx context.Context) (p model.Product, err error) {
		err = s.tx(ctx, func(tx *gorm.DB) error {
			err := tx.Exec(`INSERT INTO products (sku, name, available) VALUES (?, ?, 0)
				ON DUPLICATE KEY UPDATE name = VALUES(name)`, want.SKU, want.Name).Error
			if err != nil {
				return err
			}
			if p, err = product(tx, want.SKU, "FOR UPDATE"); err != nil {
				return err
			}
			difference := want.Stock - p.Available
			if difference == 0 {
				return nil
			}
			p.Available = want.Stock
			err = tx.Exec(`INSERT INTO stock_movements (sku, direction, quantity, moved_at)
				VALUES (?, 'adjust', ?, UTC_TIMESTAMP(6))`, want.SKU, difference).Error
			if err != nil {
				return err
			}
			return tx.Exec(`UPDATE products SET available = ? WHERE sku = ?`, want.Stock, want.SKU).Error
		})
		return p, err
	})
}

// Product reads a product's stock; model.ErrNoProduct if there is none.
func (s *Service) Product(ctx context.Context, sku string) (model.Product, error) {
	if !model.ValidID(sku) {
		return model.Product{}, model.Invalid("sku", model.IDRule)
	}
	return run(ctx, s, "read product", func(ctx context.Context) (model.Product, error) {
		return product(s.db.WithContext(ctx), sku, "")
	})
}

func product(tx *gorm.DB, sku, lock string) (model.Product, error) {
	var rows []model.Product
	err := tx.Raw(`SELECT sku, name, available, reserved, sold FROM products WHERE sku = ? `+lock, sku).Scan(&rows).Error
	if err == nil && len(rows) == 0 {
		err = model.ErrNoProduct
	}
	if err != nil {
		return model.Product{}, err
	}
	return rows[0], nil
}
