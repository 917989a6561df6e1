package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// Broker looks at a broker: its version, what the user may do below the namespace, whether strategy can work, and the work queues of topics.
func Broker(ctx context.Context, b *rabbitmq.Broker, namespace string, strategy rabbitmq.Strategy, topics []string) []Finding {
	x, err := b.Examine(ctx)
	switch {
	case errors.Is(err, rabbitmq.ErrForbidden):
		return []Finding{brokerVersion(x), fail("broker permissions", err.Error(),
			fmt.Sprintf(`let the user configure, write and read what begins with the namespace: rabbitmqctl set_permissions -p VHOST USER '^%[1]s\..*' '^%[1]s\..*' '^%[1]s\..*'`, namespace))}
	case err != nil:
		return []Finding{fail("broker", err.Error(), "make it answer at AMQP_URL, then look again")}
	}
	found := []Finding{brokerVersion(x), ok("broker permissions", "configure, write and read below "+namespace+"."), delayed(x, strategy)}
	for _, topic := range topics {
		found = append(found, queue(ctx, b, topic))
	}
	return found
}

func brokerVersion(x rabbitmq.Examination) Finding {
	const check = "broker version"
	found := x.Product + " " + x.Version
	if !atLeast(x.Version, 3, 10) {
		return fail(check, found, "use RabbitMQ 3.10 or later")
	}
	return ok(check, found)
}

func delayed(x rabbitmq.Examination, strategy rabbitmq.Strategy) Finding {
	const check = "delayed exchange"
	switch {
	case x.Delayed:
		return ok(check, "the broker has the exchange type x-delayed-message")
	case strategy == rabbitmq.Plugin:
		return fail(check, "the broker has no exchange type x-delayed-message", "enable rabbitmq_delayed_message_exchange, or set DELAY_STRATEGY to auto, hold or tiers")
	}
	return ok(check, "the broker has none, and strategy "+string(strategy)+" needs none")
}

func queue(ctx context.Context, b *rabbitmq.Broker, topic string) Finding {
	check := "queue of " + topic
	ready, consumers, err := b.Depth(ctx, topic)
	found := fmt.Sprintf("%d ready, consumers: %d", ready, consumers)
	switch {
	case errors.Is(err, outbox.ErrNoQueue):
		return warn(check, "there is none", "start a worker, which makes it")
	case err != nil:
		return fail(check, err.Error(), "see whether the queue has a leader, and whether it was declared with other arguments")
	case consumers == 0:
		return warn(check, found, "start a worker: nobody takes what is in it")
	}
	return ok(check, found)
}
