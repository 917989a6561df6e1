package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/outboxtest"
)

// exampleDB is a fresh database with the ledger's tables. A program of your own opens gorm as it always does and hands
// outbox.Migrations to its migrator.
func exampleDB(ctx context.Context) (db *gorm.DB, drop func()) {
	dsn := os.Getenv("MYSQL_DSN")
	if dsn == "" {
		panic("MYSQL_DSN is not set; run: make test")
	}
	admin := must(database.Open(ctx, dsn))
	name := "example_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	check(admin.Exec("CREATE DATABASE " + name).Error)
	slash, query := strings.LastIndex(dsn, "/"), strings.LastIndex(dsn, "?")
	db = must(database.Open(ctx, dsn[:slash+1]+name+dsn[query:]))
	check(database.Migrate(ctx, db, database.Set{Table: "goose_outbox", Files: outbox.Migrations}))
	return db, func() {
		check(admin.Exec("DROP DATABASE " + name).Error)
		check(must(db.DB()).Close())
		check(must(admin.DB()).Close())
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The message is written in the transaction of the business change, and withdrawn in the transaction that makes it needless.
func ExampleStore_Enqueue() {
	ctx := context.Background()
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{}))

	check(db.Transaction(func(tx *gorm.DB) error {
		// ... insert the order with tx ...
		return store.Enqueue(ctx, tx, &outbox.Message{Topic: "order.expire", Key: "order-1", Delay: 30 * time.Minute})
	}))
	fmt.Println(must(store.Lookup(ctx, "order.expire", "order-1")).State)

	check(db.Transaction(func(tx *gorm.DB) error {
		// ... mark the order paid with tx ...
		return store.Cancel(ctx, tx, "order.expire", "order-1")
	}))
	_, err := store.Lookup(ctx, "order.expire", "order-1")
	fmt.Println(errors.Is(err, outbox.ErrNoMessage))
	// Output:
	// scheduled
	// true
}

// Rescheduling moves the due time; what is on its way with the old one takes no effect.
func ExampleStore_Reschedule() {
	ctx := context.Background()
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{}))
	due := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	check(db.Transaction(func(tx *gorm.DB) error {
		check(store.Enqueue(ctx, tx, &outbox.Message{Topic: "order.expire", Key: "order-1", DueAt: due}))
		return store.Reschedule(ctx, tx, "order.expire", "order-1", due.Add(time.Hour))
	}))
	r := must(store.Lookup(ctx, "order.expire", "order-1"))
	fmt.Println(r.DueAt.Format(time.TimeOnly), r.Generation)
	// Output: 13:00:00 2
}

// A message that replaces the live one of its key is a debounce: only the last wish counts, and what is on its way of the ones before
// takes no effect.
func ExampleMessage_onConflict() {
	ctx := context.Background()
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{}))
	for _, wish := range []string{"tea", "coffee"} {
		check(db.Transaction(func(tx *gorm.DB) error {
			m := outbox.Message{
				Topic: "wish.grant", Key: "ann", Delay: time.Minute, Payload: []byte(wish), OnConflict: outbox.OnConflictReplace,
			}
			check(store.Enqueue(ctx, tx, &m))
			fmt.Println(wish, m.Existed)
			return nil
		}))
	}
	fmt.Println(must(store.Lookup(ctx, "wish.grant", "ann")).Generation)
	// Output:
	// tea false
	// coffee true
	// 2
}

// An effect that shares no transaction with the ledger asks before it begins and reports when it has happened.
func ExampleStore_MayRun() {
	ctx := context.Background()
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{}))
	r := must(store.Direct().Enqueue(ctx, &outbox.Message{Topic: "mail.send", Key: "ann"}))
	delivery := outbox.Delivery{ID: r.ID, Generation: r.Generation} // as a broker brings it

	check(store.MayRun(ctx, delivery))
	// ... send the mail, with the delivery's id and generation as its idempotency key ...
	check(store.Finish(ctx, delivery))

	refused, _ := errors.AsType[*outbox.RefusedError](store.MayRun(ctx, delivery))
	fmt.Println(refused.Outcome)
	// Output: duplicate
}

// The relay hands messages to a broker; Handle commits each one's effect once, however often it is delivered.
func ExampleStore_Handle() {
	ctx, stop := context.WithCancel(context.Background())
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{}))
	broker := outboxtest.NewBroker(10) // rabbitmq.NewPublisher in earnest
	relay := must(outbox.NewRelay(store, broker, outbox.RelayConfig{Owner: "example"}))
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()

	check(db.Transaction(func(tx *gorm.DB) error {
		return store.Enqueue(ctx, tx, &outbox.Message{Topic: "order.expire", Key: "order-1", Delay: 50 * time.Millisecond})
	}))
	delivery := <-broker.Fired()
	for range 2 {
		outcome := must(store.Handle(ctx, delivery, func(*gorm.DB) error {
			// ... close the order and give its stock back with the transaction ...
			fmt.Println("closing", delivery.Key)
			return nil
		}))
		fmt.Println(outcome)
	}
	stop()
	check(<-ended)
	// Output:
	// closing order-1
	// done
	// duplicate
}

// One transaction for all that came due at once, with an effect that works in sets. What follows is done by rabbitmq.Handlers.Batch: it gives
// again alone what has an error.
func ExampleStore_HandleBatch() {
	ctx := context.Background()
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{}))
	ledger := must(store.StoreID(ctx))
	var deliveries []outbox.Delivery // as the broker brings them
	for _, no := range []string{"order-1", "order-2", "order-3", "order-4"} {
		m := outbox.Message{Topic: "order.expire", Key: no}
		check(db.Transaction(func(tx *gorm.DB) error { return store.Enqueue(ctx, tx, &m) }))
		deliveries = append(deliveries, outbox.Delivery{Store: ledger, ID: m.ID, Topic: m.Topic, Key: m.Key, Generation: 1})
	}
	effect := func(_ *gorm.DB, ds []outbox.Delivery) error {
		// ... UPDATE orders SET status = 'closed' WHERE no IN (...) AND status = 'pending', with the transaction ...
		for _, d := range ds {
			if d.Key == "order-4" {
				return errors.New("this one cannot be closed")
			}
		}
		return nil
	}
	results := store.HandleBatch(ctx, deliveries, effect)
	for i, r := range results {
		how := "together"
		if errors.Is(r.Err, outbox.ErrAlone) {
			how = "alone"
			results[i] = store.HandleBatch(ctx, deliveries[i:i+1], effect)[0]
		}
		fmt.Println(deliveries[i].Key, how, results[i].Outcome, results[i].Err)
	}
	// Output:
	// order-1 together done <nil>
	// order-2 together done <nil>
	// order-3 alone done <nil>
	// order-4 alone retry <nil>
}

// Programs that use database/sql have the same calls.
func ExampleStore_SQL() {
	ctx := context.Background()
	db, drop := exampleDB(ctx)
	defer drop()
	store := must(outbox.NewStore(db, outbox.StoreConfig{})).SQL()

	tx := must(must(db.DB()).BeginTx(ctx, nil))
	m := outbox.Message{Topic: "order.expire", Key: "order-1", Delay: time.Minute}
	check(store.Enqueue(ctx, tx, &m))
	check(store.Cancel(ctx, tx, m.Topic, m.Key))
	check(tx.Commit())
	fmt.Println(m.ID > 0)
	// Output: true
}
