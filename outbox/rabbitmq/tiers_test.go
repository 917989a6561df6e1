package rabbitmq_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// plain is the shared broker that need not have the delayed exchange, with a namespace of the test's own that may have these tiers.
func plain(t *testing.T, tiers ...time.Duration) *rabbitmq.Broker {
	t.Helper()
	url := devtest.Plain(t)
	b := at(t, url, rabbitmq.Config{Namespace: devtest.NamespaceOn(t, url, topic)})
	t.Cleanup(func() {
		ch, err := devtest.Dial(t, url).Channel()
		require.NoError(t, err)
		for _, name := range rabbitmq.TierNames(b, tiers...) {
			require.NoError(t, ch.ExchangeDelete(name, false, false))
			_, err := ch.QueueDelete(name, false, false, false)
			require.NoError(t, err)
		}
	})
	return b
}

func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	ch, err := devtest.Dial(t, url).Channel()
	require.NoError(t, err)
	return ch
}

// spread gives a batch the shards of a ledger in turn.
func spread(batch []outbox.Publication) []outbox.Publication {
	for i := range batch {
		batch[i].Shard = i % 16
	}
	return batch
}

// ahead publishes a batch that long ahead of its time. What a busy machine hands over too late for that is given a later time.
func ahead(t *testing.T, p *rabbitmq.Publisher, tier time.Duration, batch []outbox.Publication) {
	t.Helper()
	for start := time.Now(); len(batch) > 0; {
		require.Less(t, time.Since(start), patience, "%d are too soon each time", len(batch))
		fireAt := time.Now().Add(tier)
		for i := range batch {
			batch[i].FireAt, batch[i].DueAt = fireAt, fireAt.Truncate(time.Microsecond).UTC()
		}
		var late []outbox.Publication
		for i, r := range p.Publish(t.Context(), batch) {
			if errors.Is(r.Err, outbox.ErrTooSoon) {
				late = append(late, batch[i])
				continue
			}
			require.NoError(t, r.Err, "receipt %d", i)
		}
		batch = late
	}
}

// requireOnTime says that each of n messages has arrived once, none before its time and none late.
func requireOnTime(t *testing.T, in *inbox, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(in.deliveries()) >= n }, patience, tick)
	in.mu.Lock()
	defer in.mu.Unlock()
	require.Len(t, in.got, n)
	var late []time.Duration
	for i, d := range in.got {
		late = append(late, in.at[i].Sub(d.DueAt))
	}
	slices.Sort(late)
	t.Logf("lateness: least %v, median %v, most %v", late[0], late[n/2], late[n-1])
	// The guard waits for what is early by up to a second; the broker counts whole milliseconds.
	require.Greater(t, late[0], -2*time.Millisecond)
	require.Less(t, late[n/2], time.Second) // whatever else the machine does
	require.Less(t, late[n-1], 5*time.Second)
}

// Delays are mixed and none waits behind another: what stays equally long is in the same queues.
func TestTiers_MessagesOfAllTiersFireAtTheirTime(t *testing.T) {
	t.Parallel()
	tiers := []time.Duration{4 * time.Second, time.Second, 2 * time.Second}
	b := plain(t, tiers...)
	p := publisher(t, b, rabbitmq.PublisherConfig{Strategy: rabbitmq.Tiers, Tiers: tiers, Topics: []string{topic}})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{Workers: 16})
	requireEpoch(t, 1, p)
	require.Equal(t, "it was asked for", p.State().Why)
	n := 0
	for range 5 {
		for _, tier := range tiers {
			ahead(t, p, tier, spread(publications(int64(n+1), 40, time.Now())))
			n += 40
		}
		requireConfirmed(t, p.Publish(t.Context(), spread(publications(int64(n+1), 10, time.Now()))))
		n += 10
	}
	for _, left := range []time.Duration{time.Minute, 3 * time.Second, 1500 * time.Millisecond, 500 * time.Millisecond} {
		for _, r := range p.Publish(t.Context(), publications(1e6, 3, time.Now().Add(left))) {
			require.ErrorIs(t, r.Err, outbox.ErrTooSoon)
		}
	}
	requireOnTime(t, in, n)
	require.Empty(t, in.strays)
	for _, d := range in.deliveries() {
		require.Equal(t, publications(1, 1, time.Now())[0].Headers, d.Headers, "none of the broker's")
	}
}

// Scenario 13: one destination of two is deleted while its message waits: the other's 50 messages are on time; the orphan is
// visible.
func TestScenario13_AMissingDestinationHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	second := devtest.Second(time.Second)
	tier := 3 * second
	b := plain(t, tier)
	p := publisher(t, b, rabbitmq.PublisherConfig{Strategy: rabbitmq.Tiers, Tiers: []time.Duration{tier}, Topics: []string{topic, "gone"}})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	requireEpoch(t, 1, p)
	orphan := publications(1, 1, time.Now())
	orphan[0].Topic = "gone"
	ahead(t, p, tier, orphan) // at the head of its queue
	for i := range 50 {
		batch := publications(int64(2+i), 1, time.Now())
		batch[0].Shard = i % 5 * 4 // of which all share the orphan's queue
		ahead(t, p, tier, batch)
	}
	_, err := channel(t, devtest.Plain(t)).QueueDelete(rabbitmq.WorkQueue(b, "gone"), false, false, false)
	require.NoError(t, err)
	requireOnTime(t, in, 50)
	require.Eventually(t, func() bool { return len(in.takenUnrouted()) == 1 }, patience, tick)
	require.Equal(t, "gone", in.takenUnrouted()[0].Topic)
	require.Equal(t, int64(1), in.takenUnrouted()[0].ID)
}

// Scenario 14: a configuration change that needs other queue arguments makes other queues, and what is in the old ones still fires.
func TestScenario14_OtherTiersMeetNoQueueOfTheOldOnes(t *testing.T) {
	t.Parallel()
	old, other := []time.Duration{2 * time.Second, 3 * time.Second}, []time.Duration{time.Second, 3 * time.Second}
	b := plain(t, time.Second, 2*time.Second, 3*time.Second)
	e := &epochs{}
	cfg := rabbitmq.PublisherConfig{Strategy: rabbitmq.Tiers, Tiers: old, Topics: []string{topic}}
	start := func() (*rabbitmq.Publisher, func() error) {
		p, err := rabbitmq.NewPublisher(b, e, cfg)
		require.NoError(t, err)
		return p, run(t, p)
	}
	p, stop := start()
	requireEpoch(t, 1, p)
	ahead(t, p, 2*time.Second, spread(publications(1, 40, time.Now())))
	require.NoError(t, stop())
	cfg.Tiers = other
	p, stop = start()
	requireEpoch(t, 2, p)
	require.Equal(t, []bool{true, true}, e.raised(), "nobody looks after what the old queues have: the ledger publishes it again")
	ahead(t, p, time.Second, spread(publications(41, 40, time.Now())))
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	requireOnTime(t, in, 80)

	// And back, in another order: all is there.
	require.NoError(t, stop())
	cfg.Tiers = []time.Duration{3 * time.Second, 2 * time.Second}
	p, _ = start()
	requireEpoch(t, 2, p)
	require.Len(t, e.raised(), 2)
}

// A message that finds its queue unbound goes on at once: too early, which the guard puts back, and not lost.
func TestTiers_AnUnboundQueueLosesNothing(t *testing.T) {
	t.Parallel()
	b := plain(t, time.Hour)
	p := publisher(t, b, rabbitmq.PublisherConfig{Strategy: rabbitmq.Tiers, Tiers: []time.Duration{time.Hour}, Topics: []string{topic}})
	requireEpoch(t, 1, p)
	ch := channel(t, devtest.Plain(t))
	for _, name := range rabbitmq.TierNames(b, time.Hour) {
		require.NoError(t, ch.QueueUnbind(name, "", name, nil))
	}
	ahead(t, p, time.Hour, spread(publications(1, 20, time.Now())))
	requireDepth(t, b, 20, 0)
}

// The look at what is there must not make a queue again that was deleted in that moment: nobody would know of the loss.
func TestTiers_MendingMakesNoQueue(t *testing.T) {
	t.Parallel()
	b := plain(t, time.Hour)
	p := publisher(t, b, rabbitmq.PublisherConfig{Strategy: rabbitmq.Tiers, Tiers: []time.Duration{time.Hour}})
	requireEpoch(t, 1, p)
	require.NoError(t, rabbitmq.MendTiers(t.Context(), b, time.Hour))
	name := rabbitmq.TierNames(b, time.Hour)[3]
	_, err := channel(t, devtest.Plain(t)).QueueDelete(name, false, false, false)
	require.NoError(t, err)
	require.ErrorContains(t, rabbitmq.MendTiers(t.Context(), b, time.Hour), "404")
	_, err = channel(t, devtest.Plain(t)).QueueDeclarePassive(name, true, false, false, false, nil)
	require.ErrorContains(t, err, "404")
}

// What lies in the queues outlives a restart. An empty disk is a loss, and so is a queue that somebody deletes.
func TestTiers_WhatIsALossAndWhatIsNot(t *testing.T) {
	t.Parallel()
	const tier = 20 * time.Second // longer than a restart
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	p := checkingWith(t, b, e, rabbitmq.PublisherConfig{Strategy: rabbitmq.Tiers, Tiers: []time.Duration{tier}, Topics: []string{topic}})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	requireEpoch(t, 1, p)
	ahead(t, p, tier, spread(publications(1, 100, time.Now())))
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	requireEpoch(t, 2, p)
	require.Equal(t, []bool{true, false}, e.raised())
	require.Eventually(t, func() bool { return len(in.deliveries()) == 100 }, 2*tier, tick, "all is still there")
	in.mu.Lock()
	for i, d := range in.got {
		require.Greater(t, in.at[i].Sub(d.DueAt), -2*time.Millisecond)
	}
	in.mu.Unlock()

	_, err := channel(t, server.URL()).QueueDelete(rabbitmq.TierNames(b, tier)[2], false, false, false)
	require.NoError(t, err)
	requireEpoch(t, 3, p)
	require.Equal(t, []bool{true, false, true}, e.raised())
	require.NoError(t, server.Wipe())
	require.NoError(t, server.Start(t.Context()))
	requireEpoch(t, 4, p)
	require.Equal(t, []bool{true, false, true, true}, e.raised())
	ahead(t, p, tier, publications(101, 5, time.Now()))
}

// Of what the delayed exchange was given before, nobody can tell after a restart.
func TestTiers_ARestartIsALossWhileThereIsADelayedExchange(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	start := func(s rabbitmq.Strategy) (*rabbitmq.Publisher, func() error) {
		p, err := rabbitmq.NewPublisher(b, e, rabbitmq.PublisherConfig{Strategy: s, Tiers: []time.Duration{time.Hour}})
		require.NoError(t, err)
		return p, run(t, p)
	}
	p, stop := start(rabbitmq.Plugin)
	requireEpoch(t, 1, p)
	require.NoError(t, stop())
	p, _ = start(rabbitmq.Tiers)
	requireEpoch(t, 2, p)
	require.Equal(t, []bool{true, true}, e.raised(), "the tiers were not there, so there may be more that is elsewhere")
	restart := func(ctx context.Context) {
		require.NoError(t, server.Stop(ctx))
		require.NoError(t, server.Start(ctx))
	}
	restart(t.Context())
	requireEpoch(t, 3, p)
	require.Equal(t, []bool{true, true, true}, e.raised())
	require.NoError(t, channel(t, server.URL()).ExchangeDelete("duebox.delay", false, false))
	restart(t.Context())
	requireEpoch(t, 4, p)
	require.Equal(t, []bool{true, true, true, false}, e.raised())
}
