package rabbitmq

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// siblings is how many queues a tier has. One quorum queue moves about 5,000 messages a second on.
const siblings = 4

const (
	// Each queue is looked at every 15 s.
	maxTiers = 16
	// A queue keeps a message for up to 2^32-1 ms.
	maxTier = 49 * 24 * time.Hour
)

// checkTiers says what is wrong with the tiers of a publisher.
func checkTiers(tiers []time.Duration) error {
	if len(tiers) < 1 || len(tiers) > maxTiers {
		return fmt.Errorf("there are %d tiers, not 1 to %d", len(tiers), maxTiers)
	}
	for i, tier := range tiers {
		switch {
		case tier < time.Second || tier > maxTier:
			return fmt.Errorf("tier %v is not from 1s to %v", tier, maxTier)
		case tier%time.Millisecond != 0:
			return fmt.Errorf("tier %v is not of whole milliseconds", tier)
		case slices.Contains(tiers[:i], tier):
			return fmt.Errorf("tier %v is there twice", tier)
		}
	}
	return nil
}

// tiers lets a message spend the last part of its time in a queue whose messages all stay equally long, so that none waits behind
// another that stays longer. What the queue lets go is dead-lettered to <ns>.deliver, with the topic that it came with.
//
// In front of each queue there is an exchange of the same name, because a message that is published to the queue itself would lose
// its topic. What finds no queue behind it goes on at once: too early, which the guard puts back, and not lost.
//
// Queues outlive a restart of the broker. Their names hold what they are declared with: other settings make other queues.
type tiers struct {
	broker *Broker
	queues map[time.Duration]*[siblings]string
	args   map[time.Duration]amqp.Table
	takes  outbox.Reach
}

func newTiers(b *Broker, delays []time.Duration) *tiers {
	s := &tiers{
		broker: b, queues: map[time.Duration]*[siblings]string{}, args: map[time.Duration]amqp.Table{},
		takes: outbox.Reach{Delays: slices.Sorted(slices.Values(delays))},
	}
	slices.Reverse(s.takes.Delays)
	for _, delay := range s.takes.Delays {
		args := b.tierArgs(delay)
		s.args[delay] = args
		s.queues[delay] = new([siblings]string)
		for i := range siblings {
			s.queues[delay][i] = b.tier(delay, i, args)
		}
	}
	return s
}

// tierArgs are those of a tier's queues. There is no x-expires, which would delete a queue with what is in it. At-least-once
// dead-lettering keeps a message until <ns>.deliver has taken it, which it always does: what no work queue wants goes to <ns>.unrouted. A broker
// that does not have it yet dead-letters at most once, and the ledger misses what that loses.
func (b *Broker) tierArgs(delay time.Duration) amqp.Table {
	args := b.queueArgs()
	args[amqp.QueueMessageTTLArg] = delay.Milliseconds()
	args["x-dead-letter-exchange"] = b.deliver()
	if b.cfg.QueueType == Quorum {
		args[amqp.QueueOverflowArg] = amqp.QueueOverflowRejectPublish
		args["x-dead-letter-strategy"] = "at-least-once"
	}
	return args
}

// tierExchangeArgs are those of the exchanges in front of the queues.
func (b *Broker) tierExchangeArgs() amqp.Table {
	return amqp.Table{"alternate-exchange": b.deliver()}
}

// tier is the name of a tier's queue and exchange: <ns>.tier.<milliseconds>.<sibling>.<hash of the arguments>.
func (b *Broker) tier(delay time.Duration, sibling int, args amqp.Table) string {
	h := fnv.New32a()
	for _, table := range []amqp.Table{args, b.tierExchangeArgs()} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			_, _ = fmt.Fprintf(h, "%s=%v\n", name, table[name]) // never an error
		}
	}
	return b.namespace + ".tier." + strconv.FormatInt(delay.Milliseconds(), 10) + "." + strconv.Itoa(sibling) + "." + fmt.Sprintf("%08x", h.Sum32())
}

func (s *tiers) name() Strategy { return Tiers }

func (s *tiers) reach() outbox.Reach { return s.takes }

// each runs do for every queue, until an error.
func (s *tiers) each(do func(delay time.Duration, queue string) error) error {
	for _, delay := range s.takes.Delays {
		for _, queue := range s.queues[delay] {
			if err := do(delay, queue); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *tiers) inspect(ctx context.Context, c *connection, ch *amqp.Channel) error {
	return s.each(func(_ time.Duration, queue string) error {
		_, err := inspect(ctx, c, ch, queue)
		return err
	})
}

// declare makes each queue before anything can be published to it.
func (s *tiers) declare(ctx context.Context, c *connection, ch *amqp.Channel) error {
	d := declaration{ctx: ctx, c: c, ch: ch}
	err := s.each(func(delay time.Duration, queue string) error {
		d.queue(queue, s.args[delay])
		return d.err
	})
	if err != nil {
		return err
	}
	return s.mend(ctx, c, ch)
}

func (s *tiers) mend(ctx context.Context, c *connection, ch *amqp.Channel) error {
	d := declaration{ctx: ctx, c: c, ch: ch}
	return s.each(func(_ time.Duration, queue string) error {
		d.exchange(queue, amqp.ExchangeFanout, s.broker.tierExchangeArgs())
		d.bind(queue, "", queue)
		return d.err
	})
}

func (s *tiers) route(p *outbox.Publication, now time.Time) (route, error) {
	left := p.FireAt.Sub(now)
	if left <= 0 {
		return route{exchange: s.broker.deliver()}, nil
	}
	delay := s.takes.Delay(left)
	if early := left - delay; early > 0 {
		return route{}, fmt.Errorf("%w: %v ahead, %v before it can be delayed", outbox.ErrTooSoon, left, early)
	}
	return route{exchange: s.queues[delay][p.Shard%siblings]}, nil
}
