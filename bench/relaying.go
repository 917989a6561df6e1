package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// runRelay runs a publisher and, as soon as it is connected, a relay, until ctx ends. What wrap returns stands between them.
func runRelay(ctx context.Context, store *outbox.Store, url string, strategy rabbitmq.Strategy, queueType rabbitmq.QueueType, owner string, wrap func(outbox.Publisher) outbox.Publisher) error {
	var once sync.Once
	connected := make(chan struct{})
	broker, err := rabbitmq.NewBroker(url, rabbitmq.Config{Namespace: namespace, QueueType: queueType, Observer: rabbitmq.Observer{
		Connected: func(string) { once.Do(func() { close(connected) }) },
	}})
	if err != nil {
		return err
	}
	publisher, err := rabbitmq.NewPublisher(broker, store, rabbitmq.PublisherConfig{
		Strategy: strategy, Tiers: []time.Duration{dueIn}, Topics: []string{topic},
	})
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(store, wrap(publisher), outbox.RelayConfig{Owner: owner, Horizon: horizon, Reach: publisher.Reach})
	if err != nil {
		return err
	}
	// The publisher outlives the relay, which drains through it.
	publishing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- publisher.Run(publishing) }()
	select {
	case <-connected:
		err = relay.Run(ctx)
	case <-ctx.Done():
	}
	stop()
	return errors.Join(err, <-ended)
}
