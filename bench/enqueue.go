package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

const writers = 4

// benchEnqueue compares the time of a transaction that inserts an order and enqueues its message with that of one which
// inserts the order alone, with four writers. Each commit reaches the disk.
func benchEnqueue(ctx context.Context, s services, o options) (l line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	if err := database.Migrate(ctx, led.db, database.Set{Table: "goose_orders", Files: ordering.Migrations}); err != nil {
		return line{}, err
	}
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{})
	if err != nil {
		return line{}, err
	}
	body := payload()
	enqueue := func(tx *gorm.DB, no string) error {
		return store.Enqueue(ctx, tx, &outbox.Message{Topic: topic, Key: no, Delay: 30 * time.Minute, Payload: body})
	}
	nothing := func(*gorm.DB, string) error { return nil }

	var withP99, withoutP99 []float64
	next := 0
	measure := func(more func(*gorm.DB, string) error, p99 *[]float64) func(int) (float64, error) {
		return func(int) (float64, error) {
			first := next
			next += o.orders
			took, err := place(ctx, led.db, first, o.orders, more)
			if err != nil {
				return 0, err
			}
			*p99 = append(*p99, percentile(took, 99))
			return percentile(took, 50), nil
		}
	}
	// The first transactions of a connection are slow; nobody's are counted.
	if _, err := measure(enqueue, new([]float64))(0); err != nil {
		return line{}, err
	}
	with, without, err := interleave(o.rounds, measure(enqueue, &withP99), measure(nothing, &withoutP99))
	if err != nil {
		return line{}, err
	}
	l = compared("enqueue", "order insert and enqueue beside order insert, 4 writers, p50", "ms", with, without)
	l.P50Ratio = *l.Ratio
	l.P99Ratio = round(median(withP99) / median(withoutP99))
	l.Aim = 1.25
	l.Met = *l.Ratio <= l.Aim
	return l, nil
}

// place inserts n orders, each with more in the same transaction, and returns how many milliseconds each took from the
// begin to the end of the commit.
func place(ctx context.Context, db *gorm.DB, first, n int, more func(tx *gorm.DB, no string) error) ([]float64, error) {
	var (
		wg   sync.WaitGroup
		took = make([]float64, n)
		errs = make([]error, writers)
	)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				no := keyOf(first + i)
				began := time.Now()
				errs[w] = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
					if err := insertOrder(tx, no, first+i); err != nil {
						return err
					}
					return more(tx, no)
				})
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
