package ordering

import (
	"context"
	"fmt"
	"time"

	"github.com/duebox/duebox/outbox"
)

const (
	stockPage = 1000
	// Between them a page of products grows or shrinks: some products have millions of movements.
	stockBrief, stockLong = 100 * time.Millisecond, time.Second
	stockTimeout          = 25 * time.Second
)

// stockSums reads a page of products with the sums of their movements. It is one statement and so sees one moment: an order that
// is placed meanwhile is in all of its numbers or in none.
//
// index: primary of products; by_sku (sku, direction, quantity) of movements, which has all that is read
const stockSums = `SELECT sku, available, reserved, sold,
		(SELECT COALESCE(SUM(m.quantity), 0) ` + movements + ` 'adjust') AS adjusted,
		(SELECT COALESCE(SUM(m.quantity), 0) ` + movements + ` 'reserve') AS reserves,
		(SELECT COALESCE(SUM(m.quantity), 0) ` + movements + ` 'release') AS releases,
		(SELECT COALESCE(SUM(m.quantity), 0) ` + movements + ` 'sell') AS sells
	FROM products WHERE sku > ? ORDER BY sku LIMIT ?`

const movements = `FROM stock_movements AS m FORCE INDEX (by_sku) WHERE m.sku = products.sku AND m.direction =`

type stockRow struct {
	SKU                                 string
	Available, Reserved, Sold           int64
	Adjusted, Reserves, Releases, Sells int64
}

func (r stockRow) conserved() bool {
	return r.Available >= 0 && r.Reserved >= 0 && r.Sold >= 0 &&
		r.Available+r.Reserved+r.Sold == r.Adjusted && r.Reserved == r.Reserves-r.Releases-r.Sells && r.Sold == r.Sells
}

// auditStock compares every product with its movements. A difference is for an operator: which number is wrong, only the
// shelves can tell.
func (s *Service) auditStock(ctx context.Context, p *outbox.Pass) error {
	limit, after := 10, ""
	for {
		began := time.Now()
		rows, err := s.readStock(ctx, after, limit)
		if err != nil {
			return err
		}
		p.Looked("products", len(rows))
		for _, row := range rows {
			if !row.conserved() {
				p.Found(FoundStock, row.SKU, false)
			}
			after = row.SKU
		}
		if len(rows) < limit {
			return nil
		}
		switch took := time.Since(began); {
		case took < stockBrief:
			limit = min(2*limit, stockPage)
		case took > stockLong:
			limit = max(limit/2, 1)
		}
	}
}

func (s *Service) readStock(ctx context.Context, after string, limit int) (rows []stockRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, stockTimeout)
	defer cancel()
	if err := s.db.WithContext(ctx).Raw(stockSums, after, limit).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read stock after product %q: %w", after, err)
	}
	return rows, nil
}

// reservedDiffers compares every product's reserved units with the items of its pending orders. It is one statement and so sees
// one moment, and reads pending orders and their items, never those that are finished: some millions of them fit its time limit.
//
// index: by_status (status, no) of orders; primary (order_no, item) of order_items
const reservedDiffers = `SELECT sku FROM products LEFT JOIN (
		SELECT i.sku AS held_sku, SUM(i.quantity) AS held
		FROM orders AS o FORCE INDEX (by_status) STRAIGHT_JOIN order_items AS i ON i.order_no = o.no
		WHERE o.status = 'pending' GROUP BY i.sku
	) AS pending ON held_sku = sku
	WHERE reserved <> COALESCE(held, 0) ORDER BY sku`

// auditReserved finds what the movements cannot show: units that stay reserved since somebody finished an order by hand.
func (s *Service) auditReserved(ctx context.Context, p *outbox.Pass) error {
	ctx, cancel := context.WithTimeout(ctx, stockTimeout)
	defer cancel()
	var skus []string
	if err := s.db.WithContext(ctx).Raw(reservedDiffers).Scan(&skus).Error; err != nil {
		return fmt.Errorf("compare reserved units with pending orders: %w", err)
	}
	for _, sku := range skus {
		p.Found(FoundReserved, sku, false)
	}
	return nil
}
