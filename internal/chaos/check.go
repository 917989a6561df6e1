package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Rule is a promise that the check asks about.
type Rule string

// The rules.
const (
	NothingLost    Rule = "every message ends"          // done, canceled, or dead with a reason
	OrderHasOne    Rule = "every order has its message" // Which may have ended.
	EffectOnce     Rule = "effect exactly once"
	NeverEarly     Rule = "never early"
	Withdrawn      Rule = "no effect of a withdrawn message"
	NotPaidAndShut Rule = "no order is paid and closed"
	OrdersEnd      Rule = "no order stays pending"
	StockConserved Rule = "stock is conserved"
	MoneyConserved Rule = "money is kept or given back"
	AnswersHold    Rule = "what was answered holds"
	OnTime         Rule = "on time when nothing is wrong"
	NothingLeft    Rule = "nothing is left over"
	StaysUp        Rule = "no process ends by itself"
	Reschedules    Rule = "orders can be rescheduled"
)

// Violation is a rule that was broken, and by what.
type Violation struct {
	Rule   Rule
	Detail string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Rule, v.Detail) }

// Found counts what the database holds at the end.
type Found struct {
	Paid, Closed, Pending, Refunds int
	Done, Canceled, Dead, Live     int
	Republished, Repaired, Epoch   int
	Kept                           string // how many deliveries are kept for an operator, by reason
}

const (
	queryLimit = time.Minute
	mostShown  = 5 // violations of one kind are told one by one
)

// checker collects what one look at the database finds.
type checker struct {
	ctx   context.Context //nolint:containedctx // lives for one function
	db    *sql.DB
	found []Violation
	err   error
}

// Check reads what came of a run that is over and compares it with what the clients were told. It shares nothing with the
// product.
func Check(ctx context.Context, db *sql.DB, l *Ledger) ([]Violation, Found, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	c := &checker{ctx: ctx, db: db}
	c.messages()
	c.effects()
	c.orders()
	c.stock(l)
	c.answers(l)
	return c.found, c.count(), c.err
}

func (c *checker) add(rule Rule, format string, args ...any) {
	c.found = append(c.found, Violation{rule, fmt.Sprintf(format, args...)})
}

// each runs a query whose rows, of one text column, each tell of a violation of rule.
func (c *checker) each(rule Rule, query string) {
	n := 0
	c.rows(query, func(rows *sql.Rows) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		if n++; n <= mostShown {
			c.add(rule, "%s", text)
		}
		return nil
	})
	if n > mostShown {
		c.add(rule, "and %d more", n-mostShown)
	}
}

func (c *checker) rows(query string, row func(*sql.Rows) error) {
	if c.err != nil {
		return
	}
	rows, err := c.db.QueryContext(c.ctx, query)
	if err != nil {
		c.err = fmt.Errorf("check: %w: %s", err, query)
		return
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			c.err = fmt.Errorf("check: %w: %s", err, query)
			return
		}
	}
	if err := rows.Err(); err != nil {
		c.err = fmt.Errorf("check: %w: %s", err, query)
	}
}

func (c *checker) messages() {
	c.each(NothingLost, `SELECT CONCAT('message ', id, ' of ', topic, ' is ', state, ', due at ', due_at, ', published ', publishes,
			' times, repaired ', repairs, ' times')
		FROM outbox_messages WHERE state NOT IN ('done', 'canceled', 'dead') ORDER BY id`)
	c.each(NothingLost, `SELECT CONCAT('message ', id, ' is dead without a reason')
		FROM outbox_messages WHERE state = 'dead' AND COALESCE(last_error, '') = '' ORDER BY id`)
	c.each(OrderHasOne, `SELECT CONCAT('order ', o.no) FROM orders o
		LEFT JOIN outbox_messages m ON m.topic = 'order.expire' AND m.message_key = CAST(o.no AS BINARY)
		WHERE m.id IS NULL ORDER BY o.no`)
}

func (c *checker) effects() {
	c.each(EffectOnce, `SELECT CONCAT('message ', message_id, ' took effect ', COUNT(*), ' times')
		FROM effects GROUP BY message_id HAVING COUNT(*) > 1 ORDER BY message_id`)
	c.each(EffectOnce, `SELECT CONCAT('message ', m.id, ' is done and took no effect')
		FROM outbox_messages m LEFT JOIN effects e ON e.message_id = m.id
		WHERE m.state = 'done' AND m.topic IN ('order.expire', 'order.remind') AND e.id IS NULL ORDER BY m.id`)
	c.each(Withdrawn, `SELECT CONCAT('message ', m.id, ', which is ', m.state, ', generation ', m.generation, ', took effect as generation ',
			e.generation)
		FROM effects e JOIN outbox_messages m ON m.id = e.message_id
		WHERE m.state = 'canceled' OR m.generation <> e.generation ORDER BY m.id`)
	c.each(NeverEarly, `SELECT CONCAT('message ', m.id, ', due at ', m.due_at, ', took effect at ', e.effected_at)
		FROM effects e JOIN outbox_messages m ON m.id = e.message_id
		WHERE e.effected_at < m.due_at ORDER BY m.id`)
	c.each(NeverEarly, `SELECT CONCAT('order ', no, ', due at ', due_at, ', was closed at ', closed_at)
		FROM orders WHERE close_reason = 'timeout' AND closed_at < due_at ORDER BY no`)
}

func (c *checker) orders() {
	c.each(NotPaidAndShut, `SELECT CONCAT('order ', o.no, ' is ', o.status)
		FROM orders o
		WHERE (o.paid_at IS NOT NULL AND (o.closed_at IS NOT NULL OR o.close_reason IS NOT NULL))
			OR (o.status = 'paid' AND o.paid_at IS NULL) OR (o.status = 'closed' AND o.closed_at IS NULL)
			OR EXISTS (SELECT 1 FROM stock_movements s JOIN stock_movements r ON r.order_no = s.order_no AND r.direction = 'release'
				WHERE s.order_no = o.no AND s.direction = 'sell')
		ORDER BY o.no`)
	c.each(OrdersEnd, `SELECT CONCAT('order ', o.no, ', due at ', o.due_at)
		FROM orders o
		WHERE o.status = 'pending' AND NOT EXISTS (SELECT 1 FROM outbox_messages m
			WHERE m.topic = 'order.expire' AND m.message_key = CAST(o.no AS BINARY) AND m.state = 'dead')
		ORDER BY o.no`)
	c.each(MoneyConserved, `SELECT CONCAT('order ', o.no, ' is ', o.status, ' with ', p.payments, ' payments and ', r.refunds, ' refunds')
		FROM orders o
		JOIN (SELECT o.no, COUNT(p.payment_id) AS payments FROM orders o LEFT JOIN payments p ON p.order_no = o.no GROUP BY o.no) p ON p.no = o.no
		JOIN (SELECT o.no, COUNT(r.payment_id) AS refunds FROM orders o LEFT JOIN refunds r ON r.order_no = o.no GROUP BY o.no) r ON r.no = o.no
		WHERE p.payments - r.refunds <> (CASE WHEN o.status = 'paid' THEN 1 ELSE 0 END) ORDER BY o.no`)
}

// stock compares each product with what there was at the beginning, and with the orders that hold its units.
func (c *checker) stock(l *Ledger) {
	seen := 0
	c.rows(`SELECT p.sku, p.available, p.reserved, p.sold, COALESCE(held.reserved, 0), COALESCE(held.sold, 0)
		FROM products p LEFT JOIN (
			SELECT i.sku AS sku, SUM(CASE WHEN o.status = 'pending' THEN i.quantity ELSE 0 END) AS reserved,
				SUM(CASE WHEN o.status = 'paid' THEN i.quantity ELSE 0 END) AS sold
			FROM order_items i JOIN orders o ON o.no = i.order_no GROUP BY i.sku
		) held ON held.sku = p.sku
		ORDER BY p.sku`, func(rows *sql.Rows) error {
		var (
			sku                                      string
			available, reserved, sold, pending, paid int64
		)
		if err := rows.Scan(&sku, &available, &reserved, &sold, &pending, &paid); err != nil {
			return err
		}
		seen++
		initial := l.stock[sku]
		if available < 0 || reserved != pending || sold != paid || available+reserved+sold != initial {
			c.add(StockConserved, "%s has %d available, %d reserved, %d sold of %d; orders hold %d reserved, %d sold",
				sku, available, reserved, sold, initial, pending, paid)
		}
		return nil
	})
	if c.err == nil && seen != len(l.stock) {
		c.add(StockConserved, "there are %d products, and there were %d", seen, len(l.stock))
	}
}

func (c *checker) count() (f Found) {
	for query, into := range map[string]*int{
		`SELECT COUNT(*) FROM orders WHERE status = 'paid'`:                               &f.Paid,
		`SELECT COUNT(*) FROM orders WHERE status = 'closed'`:                             &f.Closed,
		`SELECT COUNT(*) FROM orders WHERE status = 'pending'`:                            &f.Pending,
		`SELECT COUNT(*) FROM refunds`:                                                    &f.Refunds,
		`SELECT COUNT(*) FROM outbox_messages WHERE state = 'done'`:                       &f.Done,
		`SELECT COUNT(*) FROM outbox_messages WHERE state = 'canceled'`:                   &f.Canceled,
		`SELECT COUNT(*) FROM outbox_messages WHERE state = 'dead'`:                       &f.Dead,
		`SELECT COUNT(*) FROM outbox_messages WHERE state IN ('scheduled', 'published')`:  &f.Live,
		`SELECT COALESCE(SUM(publishes - 1), 0) FROM outbox_messages WHERE publishes > 1`: &f.Republished,
		`SELECT COALESCE(SUM(repairs), 0) FROM outbox_messages`:                           &f.Repaired,
		`SELECT broker_epoch FROM outbox_meta`:                                            &f.Epoch,
	} {
		c.rows(query, func(rows *sql.Rows) error { return rows.Scan(into) })
	}
	c.rows(`SELECT COALESCE(GROUP_CONCAT(reason, ' ', n ORDER BY reason SEPARATOR ', '), '')
		FROM (SELECT reason, COUNT(*) AS n FROM outbox_unrouted GROUP BY reason) kept`,
		func(rows *sql.Rows) error { return rows.Scan(&f.Kept) })
	return f
}
