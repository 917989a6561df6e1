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

func ExampleNewBroker() {
	_, err := rabbitmq.NewBroker("amqp://guest:secret@localhost:port/", rabbitmq.Config{})
	fmt.Println(err)
	// Output: rabbitmq: the broker's URL is not valid: invalid port ":port" after host
}
