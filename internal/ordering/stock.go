package ordering

import (
	"context"
	"fmt"
	"maps"
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

// line is an item of an order.
type line struct {
	OrderNo  string
	Item     int // its place in the order
	SKU      string
	Quantity int64
}

// linesOf reads the items of orders.
func linesOf(tx *gorm.DB, nos []string) (lines []line, err error) {
	// index: primary
	err = tx.Raw(`SELECT order_no, item, sku, quantity FROM order_items WHERE order_no IN (?)`, nos).Scan(&lines).Error
	return lines, err
}

// move is moveLines for the items of one order.
func move(tx *gorm.DB, d direction, no string, items []model.Item) error {
	lines := make([]line, len(items))
	for i, it := range items {
		lines[i] = line{no, i, it.SKU, it.Quantity}
	}
	return moveLines(tx, d, lines)
}

// moveLines moves the units of orders' items and writes why. It must be a transaction's last step: a product's row is locked
// from here to the commit, and products are locked by SKU.
func moveLines(tx *gorm.DB, d direction, lines []line) error {
	// Values and not INSERT ... SELECT: for that MariaDB locks the whole table's counter until the statement ends, and every
	// order waits for every other. The key "once" refuses a second movement of an item in one direction.
	rows := make([]string, len(lines))
	args := make([]any, 0, 5*len(lines))
	units := map[string]int64{}
	for i, l := range lines {
		rows[i] = "(?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
		args = append(args, l.SKU, l.OrderNo, l.Item, string(d), l.Quantity)
		units[l.SKU] += l.Quantity
	}
	_, err := exec(tx, `INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at)
		VALUES `+strings.Join(rows, ", "), args...)
	if err != nil {
		return err
	}
	for _, sku := range slices.Sorted(maps.Keys(units)) {
		available, reserved, sold := d.delta(units[sku])
		moved, err := change(tx, `UPDATE products SET available = available + ?, reserved = reserved + ?, sold = sold + ?
			WHERE sku = ? AND available + ? >= 0 AND reserved + ? >= 0`, available, reserved, sold, sku, available, reserved)
		switch {
		case err != nil:
			return err
		case !moved && d == reserve:
			return &model.OutOfStockError{SKU: sku}
		case !moved:
			return fmt.Errorf("%s %d of product %s: fewer units are reserved", d, units[sku], sku)
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
