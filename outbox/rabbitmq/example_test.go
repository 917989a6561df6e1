package rabbitmq_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// A publisher is what a relay hands messages to.
func ExamplePublisher() {
	ctx := context.Background() // of the process
	broker, err := rabbitmq.NewBroker(os.Getenv("AMQP_URL"), rabbitmq.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	var store *outbox.Store // of outbox.NewStore
	publisher, err := rabbitmq.NewPublisher(broker, store, rabbitmq.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = publisher.Run(ctx) }()
	relay, err := outbox.NewRelay(store, publisher, outbox.RelayConfig{Owner: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	if err := relay.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A consumer brings what has fired to its effect.
func ExampleConsumer() {
	broker, err := rabbitmq.NewBroker(os.Getenv("AMQP_URL"), rabbitmq.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	var store *outbox.Store // of outbox.NewStore
	consumer, err := rabbitmq.NewConsumer(broker, []string{"order.expire"}, rabbitmq.Handlers{
		Handle: func(ctx context.Context, d outbox.Delivery) error {
			_, err := store.SQL().Handle(ctx, d, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE orders SET status = 'closed' WHERE no = ?", d.Key)
				return err
			})
			return err
		},
		Unrouted: store.Unrouted,
		Keep:     store.Keep,
	}, rabbitmq.ConsumerConfig{Workers: 16})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Run(context.Background()); err != nil { // until the context ends
		log.Fatal(err)
	}
}

// Where thousands come due at once a topic has a handler of many. What HandleBatch leaves with ErrAlone is given to it again, alone.
func ExampleConsumer_batch() {
	broker, err := rabbitmq.NewBroker(os.Getenv("AMQP_URL"), rabbitmq.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	var store *outbox.Store // of outbox.NewStore
	expire := func(ctx context.Context, ds []outbox.Delivery) []error {
		results := store.SQL().HandleBatch(ctx, ds, func(tx *sql.Tx, ds []outbox.Delivery) error {
			for _, d := range ds {
				if _, err := tx.ExecContext(ctx, "UPDATE orders SET status = 'closed' WHERE no = ?", d.Key); err != nil {
					return err // of all of them; they are tried in smaller groups
				}
			}
			return nil
		})
		errs := make([]error, len(ds))
		for i, r := range results {
			errs[i] = r.Err
		}
		return errs
	}
	consumer, err := rabbitmq.NewConsumer(broker, []string{"order.expire"}, rabbitmq.Handlers{
		Batch:    map[string]func(context.Context, []outbox.Delivery) []error{"order.expire": expire},
		Unrouted: store.Unrouted,
		Keep:     store.Keep,
	}, rabbitmq.ConsumerConfig{Workers: 8, Batch: 32})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func ExampleNewBroker() {
	_, err := rabbitmq.NewBroker("amqp://guest:secret@localhost:port/", rabbitmq.Config{})
	fmt.Println(err)
	// Output: rabbitmq: the broker's URL is not valid: invalid port ":port" after host
}
