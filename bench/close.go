package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

const (
	closeProducts = 100
	closeClients  = 8 // transactions at a time, of the worker and of the bare closing
)

// benchClose compares how many orders a second a worker closes that are due within one second, from the first one's due time until the last
// is closed and its stock given back, with the same statements in one bare SQL transaction for each order, without broker or worker, and as many
// of them at a time. With strategy plugin the broker has all messages before they are due.
func benchClose(strategy rabbitmq.Strategy) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, err := openLedger(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()
		if err := database.Migrate(ctx, led.db, database.Set{Table: "goose_orders", Files: ordering.Migrations}); err != nil {
			return line{}, err
		}
		led.sql.SetMaxOpenConns(50)
		led.sql.SetMaxIdleConns(50)
		c := closing{s: s, led: led, strategy: strategy, orders: o.closing, lead: o.lead}
		// Nobody's first round is counted: files grow and code is loaded.
		if _, err := c.bare(ctx); err != nil {
			return line{}, err
		}
		with, bare, err := interleave(o.rounds, func() (float64, error) { return c.worker(ctx) }, func() (float64, error) { return c.bare(ctx) })
		if err != nil {
			return line{}, err
		}
		l = compared("close", fmt.Sprintf("%s: %d orders due within a second, beside a bare transaction for each, %d at a time", strategy, o.closing, closeClients),
			"orders/s", with, bare)
		l.Strategy, l.Exchange = string(strategy), s.exchange
		l.Aim = 1.5
		l.Met = *l.Ratio >= l.Aim
		return l, nil
	}
}

type closing struct {
	s        services
	led      *ledger
	strategy rabbitmq.Strategy
	orders   int
	lead     time.Duration
}

// fill makes the tables anew: pending orders of one or two products each, with their messages, the first due after the given time.
func (c *closing) fill(ctx context.Context, due time.Duration) error {
	for _, table := range []string{"outbox_messages", "orders", "order_items", "products", "stock_movements", "effects"} {
		if _, err := c.led.sql.ExecContext(ctx, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	step := time.Second / time.Duration(c.orders)
	if err := c.led.fillWith(ctx, c.orders, due, step, func(key string) []byte { return model.OrderPayload{No: key}.Encode() }); err != nil {
		return err
	}
	for _, statement := range []string{
		// No order is due later than its message, which the effect does not look at.
		`INSERT INTO orders (no, user_id, kind, total, message_id, due_at, created_at)
			SELECT CONVERT(message_key USING ascii), CONCAT('user-', id % 1000), 'normal', 1999, id, due_at, created_at FROM outbox_messages`,
		fmt.Sprintf(`INSERT INTO order_items (order_no, item, sku, quantity, price)
			SELECT CONVERT(message_key USING ascii), 0, CONCAT('sku-', id %% %d), 1, 999 FROM outbox_messages`, closeProducts),
		fmt.Sprintf(`INSERT INTO order_items (order_no, item, sku, quantity, price)
			SELECT CONVERT(message_key USING ascii), 1, CONCAT('sku-', (id + 7) %% %d), 2, 500 FROM outbox_messages WHERE id %% 2 = 0`, closeProducts),
		`INSERT INTO products (sku, name, available, reserved) SELECT sku, sku, 0, SUM(quantity) FROM order_items GROUP BY sku`,
	} {
		if _, err := c.led.sql.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("fill the shop: %w", err)
		}
	}
	return nil
}

// check makes sure that every order is closed, by one effect, and that no unit is reserved any more.
func (c *closing) check(ctx context.Context) error {
	for want, query := range map[string]string{
		"every order closed":    "SELECT COUNT(*) FROM orders WHERE status <> 'closed'",
		"every message done":    "SELECT COUNT(*) FROM outbox_messages WHERE state <> 'done'",
		"one effect each":       "SELECT COUNT(*) FROM (SELECT message_id FROM effects GROUP BY message_id HAVING COUNT(*) > 1) AS twice",
		"no stock reserved":     "SELECT COALESCE(SUM(reserved), 0) FROM products",
		"all stock given back":  "SELECT (SELECT SUM(quantity) FROM order_items) - (SELECT SUM(available) FROM products)",
		"a movement each":       "SELECT (SELECT COUNT(*) FROM order_items) - (SELECT COUNT(*) FROM stock_movements)",
		"as many as were there": fmt.Sprintf("SELECT COUNT(*) - %d FROM orders", c.orders),
	} {
		var wrong int
		if err := c.led.sql.QueryRowContext(ctx, query).Scan(&wrong); err != nil {
			return err
		}
		if wrong != 0 {
			return fmt.Errorf("not %s: %d", want, wrong)
		}
	}
	return nil
}

// worker has a worker close the orders.
func (c *closing) worker(ctx context.Context) (perSecond float64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the worker was too slow"))
	defer cancel()
	if err := emptyBroker(ctx, c.s); err != nil {
		return 0, err
	}
	store, err := outbox.NewStore(c.led.db, outbox.StoreConfig{})
	if err != nil {
		return 0, err
	}
	shop, err := ordering.New(c.led.db, store, ordering.Config{})
	if err != nil {
		return 0, err
	}
	w, err := worker.New(c.led.db, c.s.amqp, nil, worker.Config{
		HTTPAddr: "127.0.0.1:0", Namespace: namespace, Strategy: c.strategy, Horizon: horizon, Workers: closeClients,
		BatchEffects: map[string]worker.BatchEffect{model.TopicExpire: shop.ExpireAll},
	})
	if err != nil {
		return 0, err
	}
	if err := c.fill(ctx, c.lead); err != nil {
		return 0, err
	}
	var first time.Time // by the database's clock, which is this machine's
	var micros int64
	if err := c.led.sql.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(due_at)) FROM outbox_messages").Scan(&micros); err != nil {
		return 0, err
	}
	if first = time.UnixMicro(micros); time.Until(first) < time.Second {
		return 0, fmt.Errorf("the tables were not filled within -lead %v", c.lead)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	last, err := c.await(ctx, ended)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return 0, err
	}
	return float64(c.orders) / last.Sub(first).Seconds(), c.check(ctx)
}

// await returns when the last order was closed.
func (c *closing) await(ctx context.Context, ended chan error) (last time.Time, err error) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		var left int
		var micros sql.NullInt64
		// index: by_status. One row is enough to know that not all are closed.
		err := c.led.sql.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT no FROM orders WHERE status = 'pending' LIMIT 1) AS one").Scan(&left)
		if err == nil && left == 0 {
			err = c.led.sql.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MAX(finished_at)) FROM outbox_messages").Scan(&micros)
			return time.UnixMicro(micros.Int64), err
		}
		if err != nil {
			return time.Time{}, err
		}
		select {
		case <-look.C:
		case err := <-ended:
			ended <- err
			return time.Time{}, errors.New("the worker ended")
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("orders are not closed: %w", context.Cause(ctx))
		}
	}
}

// bare closes the orders with one transaction each.
func (c *closing) bare(ctx context.Context) (perSecond float64, err error) {
	if err := c.fill(ctx, -time.Minute); err != nil {
		return 0, err
	}
	rows, err := c.led.sql.QueryContext(ctx, "SELECT id, CONVERT(message_key USING ascii) FROM outbox_messages ORDER BY due_at")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	type message struct {
		id int64
		no string
	}
	var messages []message
	for rows.Next() {
		var m message
		if err := rows.Scan(&m.id, &m.no); err != nil {
			return 0, err
		}
		messages = append(messages, m)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	var (
		wg   sync.WaitGroup
		next = make(chan message)
		errs = make([]error, closeClients)
	)
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("bare closing was too slow"))
	defer cancel()
	began := time.Now()
	for i := range closeClients {
		wg.Go(func() {
			for m := range next {
				if errs[i] == nil {
					errs[i] = c.closeBare(ctx, m.id, m.no)
				}
			}
		})
	}
	for _, m := range messages {
		next <- m
	}
	close(next)
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return float64(c.orders) / took.Seconds(), c.check(ctx)
}

// closeBare closes one order, and runs again what has lost a deadlock.
func (c *closing) closeBare(ctx context.Context, id int64, no string) error {
	for {
		err := c.closeOnce(ctx, id, no)
		if !outbox.IsRetryable(err) {
			return err
		}
	}
}

// closeOnce sends the statements that a delivery's guard and effect would send for this order alone.
func (c *closing) closeOnce(ctx context.Context, id int64, no string) error {
	tx, err := c.led.sql.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // a no-op after Commit
	for _, s := range []struct {
		statement string
		args      []any
	}{
		{`UPDATE outbox_messages SET state = 'done', live_key = NULL, revision = revision + 1, held = FALSE,
				available_at = UTC_TIMESTAMP(6) + INTERVAL 7 DAY, finished_at = UTC_TIMESTAMP(6)
			WHERE id = ? AND topic = ? AND message_key <=> ? AND generation = 1
				AND state IN ('scheduled', 'published') AND due_at <= UTC_TIMESTAMP(6)`, []any{id, topic, []byte(no)}},
		{`INSERT INTO effects (message_id, generation, effected_at) VALUES (?, 1, UTC_TIMESTAMP(6))`, []any{id}},
		{`UPDATE orders SET status = 'closed', close_reason = 'timeout', closed_at = UTC_TIMESTAMP(6), version = version + 1
			WHERE no = ? AND status = 'pending'`, []any{no}},
	} {
		if _, err := tx.ExecContext(ctx, s.statement, s.args...); err != nil {
			return err
		}
	}
	units, err := c.units(ctx, tx, no)
	if err != nil {
		return err
	}
	values := strings.TrimSuffix(strings.Repeat("(?, ?, ?, 'release', ?, UTC_TIMESTAMP(6)), ", len(units)), ", ")
	args := make([]any, 0, 4*len(units))
	for _, u := range units {
		args = append(args, u.sku, no, u.item, u.quantity)
	}
	insert := "INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at) VALUES " + values //nolint:gosec // marks only
	if _, err := tx.ExecContext(ctx, insert, args...); err != nil {
		return err
	}
	for _, u := range units {
		if _, err := tx.ExecContext(ctx, `UPDATE products SET available = available + ?, reserved = reserved - ? WHERE sku = ? AND reserved >= ?`,
			u.quantity, u.quantity, u.sku, u.quantity); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// unit is an item of an order.
type unit struct {
	item     int
	sku      string
	quantity int64
}

func (c *closing) units(ctx context.Context, tx *sql.Tx, no string) (units []unit, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT item, sku, quantity FROM order_items WHERE order_no = ? ORDER BY sku`, no)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var u unit
		if err := rows.Scan(&u.item, &u.sku, &u.quantity); err != nil {
			return nil, err
		}
		units = append(units, u)
	}
	return units, rows.Err()
}
