package main

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// due enqueues a message in the order's transaction, takes it back when the order is paid, and closes orders in the effect of their messages.
type due struct {
	plainly
	env

	strategy rabbitmq.Strategy
	gorm     *gorm.DB
	store    *outbox.Store
}

const expire = "order.expire"

func newDue(e env, s rabbitmq.Strategy) *due { return &due{env: e, strategy: s} }

func (d *due) open() (err error) {
	if d.gorm, err = gorm.Open(mysql.New(mysql.Config{Conn: d.db}), &gorm.Config{}); err == nil {
		d.store, err = outbox.NewStore(d.gorm, outbox.StoreConfig{})
	}
	return err
}

func (d *due) Setup(ctx context.Context) error {
	if err := d.open(); err != nil {
		return err
	}
	return database.Migrate(ctx, d.gorm, database.Set{Table: "goose_outbox", Files: outbox.Migrations})
}

func (d *due) Placing(ctx context.Context, tx *sql.Tx, o order) error {
	return d.store.SQL().Enqueue(ctx, tx, &outbox.Message{Topic: expire, Key: o.No, Delay: o.Timeout})
}

func (d *due) Paying(ctx context.Context, tx *sql.Tx, no string) error {
	err := d.store.SQL().Cancel(ctx, tx, expire, no)
	if errors.Is(err, outbox.ErrNoMessage) {
		return nil
	}
	return err
}

func (d *due) Work(ctx context.Context) error {
	w, err := worker.New(d.gorm, d.amqpURL, nil, worker.Config{
		HTTPAddr: "127.0.0.1:0", Namespace: d.name, Strategy: d.strategy, Tiers: slices.Compact(slices.Sorted(maps.Values(d.timeouts))), Log: d.log,
		BatchEffects: map[string]worker.BatchEffect{expire: func(ctx context.Context, tx *gorm.DB, ds []outbox.Delivery) error {
			for _, delivery := range ds {
				if err := d.close(ctx, tx.Statement.ConnPool, delivery.Key); err != nil {
					return err
				}
			}
			return nil
		}},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
