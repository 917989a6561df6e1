package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

// turns is how often each variant has its turn in a round: what else the machine does lasts longer than one and meets both.
const turns = 10

// benchEnqueue compares the time of a transaction that inserts an order and enqueues its message with that of one which
// inserts the order alone. Each commit reaches the disk.
func benchEnqueue(writers int) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, store, err := openShop(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()
		body := payload()
		place := func(ctx context.Context, i int, message bool) error {
			no := keyOf(i)
			return led.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				if err := insertOrder(tx, no, i); err != nil || !message {
					return err
				}
				return store.Enqueue(ctx, tx, &outbox.Message{Topic: topic, Key: no, Delay: 30 * time.Minute, Payload: body})
			})
		}
		l, err = withAndWithout(ctx, o, writers, place)
		l.describe("enqueue", fmt.Sprintf("order insert and enqueue beside order insert, writers=%d, p50", writers))
		l.Aim = 1.2
		l.Met = l.P50Ratio <= l.Aim && l.P99Ratio <= 1.3
		return l, err
	}
}

// benchEnqueueOrder compares the whole transaction that places an order, as ordering has it and without a reminder, with the same without
// its message.
func benchEnqueueOrder(writers int) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, store, err := openShop(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()
		if err := fillShelves(ctx, led.sql, products); err != nil {
			return line{}, err
		}
		place := func(ctx context.Context, i int, message bool) error {
			return bareOrder(ctx, led.sql, skuOf(i%products), i, func(tx *sql.Tx, no string, due time.Time) (int64, error) {
				if !message {
					return 0, nil
				}
				m := orderMessage(topic, no, due)
				err := store.SQL().Enqueue(ctx, tx, &m)
				return m.ID, err
			})
		}
		l, err = withAndWithout(ctx, o, writers, place)
		l.describe("enqueue-order", fmt.Sprintf("placing an order with its message beside placing it without, writers=%d, p50", writers))
		l.Aim = 1.1
		l.Met = l.P50Ratio <= l.Aim
		return l, err
	}
}

// openShop opens a ledger beside the tables of orders, with a store as the program has it.
func openShop(ctx context.Context, dsn string) (led *ledger, store *outbox.Store, err error) {
	if led, err = openLedger(ctx, dsn); err != nil {
		return nil, nil, err
	}
	err = database.Migrate(ctx, led.db, database.Set{Table: "goose_orders", Files: ordering.Migrations})
	if err == nil {
		store, err = outbox.NewStore(led.db, outbox.StoreConfig{})
	}
	if err != nil {
		return nil, nil, errors.Join(err, led.close())
	}
	return led, store, nil
}

// withAndWithout measures transactions with a message and the same without, in turns.
func withAndWithout(ctx context.Context, o options, writers int, place func(ctx context.Context, i int, message bool) error) (line, error) {
	with, without := make([][]float64, o.rounds), make([][]float64, o.rounds) // round -> milliseconds of each transaction
	next := 0
	turn := func(message bool, took [][]float64) func(int) error {
		return func(i int) error {
			n := max(1, o.orders/turns)
			first := next
			next += n
			ms, err := each(writers, n, func(_, k int) error { return place(ctx, first+k, message) })
			took[i/turns] = append(took[i/turns], ms...)
			return err
		}
	}
	// The first transactions of a connection are slow; nobody's are counted.
	if err := turn(true, make([][]float64, 1))(0); err != nil {
		return line{}, err
	}
	if err := alternate(o.rounds*turns, turn(true, with), turn(false, without)); err != nil {
		return line{}, err
	}
	l := compared("", "", "ms", percentiles(with, 50), percentiles(without, 50))
	l.P50Ratio = *l.Ratio
	l.P99Ratio = round(median(percentiles(with, 99)) / median(percentiles(without, 99)))
	return l, nil
}

// each does n things, shared out among workers that each do one after the other, and returns how many milliseconds each took.
func each(workers, n int, do func(worker, i int) error) ([]float64, error) {
	var (
		wg   sync.WaitGroup
		took = make([]float64, n)
		errs = make([]error, workers)
	)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				began := time.Now()
				errs[w] = do(w, i)
				took[i] = float64(time.Since(began)) / float64(time.Millisecond)
			}
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

func insertOrder(tx *gorm.DB, no string, i int) error {
	return tx.Exec(`INSERT INTO orders (no, user_id, kind, total, due_at, created_at) VALUES
		(?, ?, 'normal', 1999, UTC_TIMESTAMP(6) + INTERVAL 30 MINUTE, UTC_TIMESTAMP(6))`,
		no, fmt.Sprintf("user-%d", i%1000)).Error
}
