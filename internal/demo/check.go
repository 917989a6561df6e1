package demo

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// findings is what the database says about a run that is over.
type findings struct {
	paid, closed, pending int
	// refunded counts refund records.
	refunded int
	// lost counts orders that are pending past their due time.
	lost int
	// early counts orders that were closed by time, or had an effect, before that was due.
	early int
	// duplicateEffects counts effects beyond each message's first.
	duplicateEffects int
	// republished counts publications beyond each message's first, as far as the relay has written them down: a message
	// whose effect was committed before that is not counted.
	republished    int
	stockConserved bool
	// problems are further things that must not be, in words.
	problems []string
}

func (f *findings) orders() int { return f.paid + f.closed + f.pending }

// checkLimit bounds each query of the check.
const checkLimit = time.Minute

// check reads what came of a run. It shares nothing with the product: not a query, not a type, not a connection. The units of
// each product at the beginning are in given, and the numbers of the orders that the API has accepted in placed.
func check(ctx context.Context, db *sql.DB, given map[string]int64, placed []string) (findings, error) {
	var f findings
	for _, count := range []struct {
		what  string
		into  *int
		query string
	}{
		{"paid orders", &f.paid, `SELECT COUNT(*) FROM orders WHERE status = 'paid'`},
		{"closed orders", &f.closed, `SELECT COUNT(*) FROM orders WHERE status = 'closed'`},
		{"pending orders", &f.pending, `SELECT COUNT(*) FROM orders WHERE status = 'pending'`},
		{"refunds", &f.refunded, `SELECT COUNT(*) FROM refunds`},
		{"lost orders", &f.lost, `SELECT COUNT(*) FROM orders WHERE status = 'pending' AND due_at < UTC_TIMESTAMP(6)`},
		{"early orders", &f.early, `SELECT COUNT(*) FROM (
				SELECT no FROM orders WHERE close_reason = 'timeout' AND closed_at < due_at
				UNION
				SELECT o.no FROM effects e
				JOIN outbox_messages m ON m.id = e.message_id
				JOIN orders o ON o.no = CONVERT(m.message_key USING ascii)
				WHERE e.effected_at < CASE WHEN m.topic = 'order.expire' THEN o.due_at ELSE m.due_at END
			) AS too_soon`},
		{"duplicate effects", &f.duplicateEffects, `SELECT COUNT(*) - COUNT(DISTINCT message_id) FROM effects`},
		{"publications", &f.republished, `SELECT COALESCE(SUM(publishes - 1), 0) FROM outbox_messages WHERE publishes > 1`},
	} {
		if err := count1(ctx, db, count.into, count.query); err != nil {
			return f, fmt.Errorf("count %s: %w", count.what, err)
		}
	}
	if err := f.checkStock(ctx, db, given); err != nil {
		return f, fmt.Errorf("check the stock: %w", err)
	}
	if err := f.checkMoney(ctx, db); err != nil {
		return f, fmt.Errorf("check the payments: %w", err)
	}
	if err := f.checkPlaced(ctx, db, placed); err != nil {
		return f, fmt.Errorf("check the orders: %w", err)
	}
	return f, nil
}

func count1(ctx context.Context, db *sql.DB, into *int, query string) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	return db.QueryRowContext(ctx, query).Scan(into)
}

// checkStock compares each product with what there was at the beginning and with the orders that hold its units.
func (f *findings) checkStock(ctx context.Context, db *sql.DB, given map[string]int64) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	rows, err := db.QueryContext(ctx, `SELECT p.sku, p.available, p.reserved, p.sold,
			COALESCE(held.reserved, 0), COALESCE(held.sold, 0)
		FROM products p LEFT JOIN (
			SELECT i.sku AS sku,
				SUM(CASE WHEN o.status = 'pending' THEN i.quantity ELSE 0 END) AS reserved,
				SUM(CASE WHEN o.status = 'paid' THEN i.quantity ELSE 0 END) AS sold
			FROM order_items i JOIN orders o ON o.no = i.order_no GROUP BY i.sku
		) held ON held.sku = p.sku`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	wrong, seen := 0, 0
	for rows.Next() {
		var (
			sku                       string
			available, reserved, sold int64
			pending, paid             int64 // units in such orders
		)
		if err := rows.Scan(&sku, &available, &reserved, &sold, &pending, &paid); err != nil {
			return err
		}
		if want, ok := given[sku]; ok {
			seen++
			if available < 0 || reserved != pending || sold != paid || available+reserved+sold != want {
				wrong++
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	f.stockConserved = wrong == 0 && seen == len(given)
	return nil
}

// checkMoney: of what was paid, a paid order keeps one payment; everything else has a refund record.
func (f *findings) checkMoney(ctx context.Context, db *sql.DB) error {
	var wrong int
	err := count1(ctx, db, &wrong, `SELECT COUNT(*) FROM orders o
		WHERE (SELECT COUNT(*) FROM payments p WHERE p.order_no = o.no)
			- (SELECT COUNT(*) FROM refunds r WHERE r.order_no = o.no)
			<> (CASE WHEN o.status = 'paid' THEN 1 ELSE 0 END)`)
	if err == nil && wrong > 0 {
		f.problems = append(f.problems, fmt.Sprintf("%d orders whose payments and refunds do not add up", wrong))
	}
	return err
}

// checkPlaced: what the API has accepted is there, and nothing else.
func (f *findings) checkPlaced(ctx context.Context, db *sql.DB, placed []string) error {
	missing := make(map[string]bool, len(placed))
	for _, no := range placed {
		missing[no] = true
	}
	if len(missing) < len(placed) {
		f.problems = append(f.problems, fmt.Sprintf("%d order numbers were given twice", len(placed)-len(missing)))
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	rows, err := db.QueryContext(ctx, `SELECT no FROM orders`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	foreign := 0
	for rows.Next() {
		var no string
		if err := rows.Scan(&no); err != nil {
			return err
		}
		if !missing[no] {
			foreign++
		}
		delete(missing, no)
	}
	if len(missing) > 0 {
		f.problems = append(f.problems, fmt.Sprintf("%d accepted orders are not in the database", len(missing)))
	}
	if foreign > 0 {
		f.problems = append(f.problems, fmt.Sprintf("%d orders in the database that nobody placed", foreign))
	}
	return rows.Err()
}

// checkLate: the payments with these ids came after closing, so each has been refunded.
func (f *findings) checkLate(ctx context.Context, db *sql.DB, late []string) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	rows, err := db.QueryContext(ctx, `SELECT payment_id FROM refunds`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	refunded := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		refunded[id] = true
	}
	kept := 0
	for _, id := range late {
		if !refunded[id] {
			kept++
		}
	}
	if kept > 0 {
		f.problems = append(f.problems, fmt.Sprintf("%d of %d payments after closing were not refunded", kept, len(late)))
	}
	return rows.Err()
}
