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

const (
	writers = 4
	turns   = 10 // of each variant in a round: what else the machine does lasts longer than one and meets both
)

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

	with, without := make([][]float64, o.rounds), make([][]float64, o.rounds) // round -> milliseconds of each transaction
	next := 0
	turn := func(more func(*gorm.DB, string) error, took [][]float64) func(int) error {
		return func(i int) error {
			n := max(1, o.orders/turns)
			next += n
			ms, err := place(ctx, led.db, next-n, n, more)
			took[i/turns] = append(took[i/turns], ms...)
			return err
		}
	}
	// The first transactions of a connection are slow; nobody's are counted.
	if err := turn(enqueue, make([][]float64, 1))(0); err != nil {
		return line{}, err
	}
	if err := alternate(o.rounds*turns, turn(enqueue, with), turn(nothing, without)); err != nil {
		return line{}, err
	}
	l = compared("enqueue", "order insert and enqueue beside order insert, 4 writers, p50", "ms", percentiles(with, 50), percentiles(without, 50))
	l.P50Ratio = *l.Ratio
	l.P99Ratio = round(median(percentiles(with, 99)) / median(percentiles(without, 99)))
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
