package worker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

// tiered is a worker's configuration with tiers, in which nothing but the epoch helps.
func tiered(tiers ...time.Duration) worker.Config {
	cfg := onlyEpoch()
	cfg.Strategy, cfg.Tiers = rabbitmq.Tiers, tiers
	return cfg
}

// lateness of the nth message of all that are done, by their lateness; 1 is the least late.
func (p *place) lateness(t *testing.T, nth int) time.Duration {
	t.Helper()
	return time.Duration(p.count(t, `SELECT late FROM (
			SELECT TIMESTAMPDIFF(MICROSECOND, m.due_at, e.effected_at) AS late, ROW_NUMBER() OVER (ORDER BY TIMESTAMPDIFF(MICROSECOND, m.due_at, e.effected_at)) AS nth
			FROM effects e JOIN outbox_messages m ON m.id = e.message_id) AS x
		WHERE nth = ?`, nth)) * time.Microsecond
}

// Two workers, delays mixed within one second: some go through a tier, some are held, none is early and none late. And
// Scenario 12: 60 s, 5 s, 30 s (here 15 s, for a tier's sake) published in that order arrive at 5, 30, 60.
func TestScenario12_MixedDelaysFireOnTimeThroughTiers(t *testing.T) {
	t.Parallel()
	const messages = 600
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone})
	p := newPlaceOn(t, broker.URL(), "mixed")
	cfg := tiered(4*time.Second, time.Second, 2*time.Second)
	w, _ := p.start(t, cfg, map[string]worker.Effect{topic: written})
	p.start(t, cfg, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	all := make([]outbox.Message, messages)
	for i := range all {
		all[i].Delay = time.Duration(i*37%8000) * time.Millisecond
	}
	for chunk := range slices.Chunk(all, messages/10) {
		p.enqueue(t, chunk...)
	}
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
	middle, most := p.lateness(t, messages/2), p.lateness(t, messages)
	// What took effect before it was settled has the time of no publishing.
	const ahead = `SELECT COUNT(*) FROM outbox_messages WHERE published_at > '2000-01-01' AND published_at < due_at - INTERVAL ? MICROSECOND`
	tiered := p.count(t, ahead, 800_000)
	t.Logf("lateness: median %v, most %v; %d of %d were in the broker ahead of their time", middle, most, tiered, messages)
	require.Less(t, middle, time.Second, "whatever else the machine does")
	require.Greater(t, tiered, messages/10, "what a busy machine hands over too late waits in the ledger")
	require.Zero(t, p.count(t, ahead, 4_000_000))
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE publishes > 1 OR repairs > 0`))
	state := w.Readiness(t.Context()).Publisher
	require.Equal(t, "tiers", state.Strategy)
	require.Equal(t, "it was asked for", state.Why)
	require.Equal(t, 1, metric(t, w, `duebox_strategy_info{strategy="tiers"}`))

	second := devtest.Second(75 * time.Millisecond)
	ids := p.enqueue(t, outbox.Message{Delay: 60 * second}, outbox.Message{Delay: 15 * second}, outbox.Message{Delay: 30 * second})
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages+3 }, patience, tick)
	var got []int64
	require.NoError(t, p.db.Raw(`SELECT message_id FROM effects WHERE message_id >= ? ORDER BY effected_at`, ids[0]).Scan(&got).Error)
	require.Equal(t, []int64{ids[1], ids[2], ids[0]}, got)
}

// A restart loses nothing that is in the queues, and nothing is published again. An empty disk and a queue that is deleted
// are losses.
func TestTiers_OnlyALossIsPublishedAgain(t *testing.T) {
	t.Parallel()
	const (
		messages = 200
		tier     = 20 * time.Second // longer than a broker is away, and than a worker takes to be ready again
	)
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone})
	p := newPlaceOn(t, broker.URL(), "tiers")
	w, _ := p.start(t, tiered(tier), map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	queues := func() (names []string) {
		out, err := broker.Ctl(t.Context(), "list_queues", "--silent", "name")
		require.NoError(t, err)
		for name := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(name, "tiers.tier.20000.") {
				names = append(names, name)
			}
		}
		return names
	}
	names := queues() // it takes long to ask, for messages that wait in them
	require.Len(t, names, 4)
	for round, l := range []struct {
		name  string
		again bool // the messages are published again
		lose  func() error
	}{
		{"restart", false, func() error { return errors.Join(broker.Stop(t.Context()), broker.Start(t.Context())) }},
		{"deleted queues", true, func() error {
			ch, err := devtest.Dial(t, broker.URL()).Channel()
			if err != nil {
				return err
			}
			for _, name := range names {
				if _, err := ch.QueueDelete(name, false, false, false); err != nil {
					return err
				}
			}
			return nil
		}},
		{"empty disk", true, func() error { return errors.Join(broker.Wipe(), broker.Start(t.Context())) }},
	} {
		// Re-arming rests for 30 s after the last time, which is not what is looked at here.
		p.exec(t, `UPDATE outbox_meta SET rearmed_at = NULL WHERE id = ?`, 1)
		epoch, rearmed := w.Readiness(t.Context()).Publisher.Epoch, repaired(t, w, "epoch")
		ids := p.enqueue(t, dueFrom(messages, tier+2*time.Second, 2*time.Second)...)
		require.Eventually(t, func() bool {
			return p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE state = 'scheduled' AND due_at > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`,
				(tier-time.Second).Microseconds()) == 0
		}, patience, tick)
		inBroker := p.inState(t, outbox.Published) // the others have missed the tier, on a machine that is busy elsewhere
		require.Greater(t, inBroker, messages/2)
		require.NoError(t, l.lose(), l.name)
		require.Eventually(t, func() bool { return ready(t, w)() && w.Readiness(t.Context()).Publisher.Epoch == epoch+1 }, patience, tick, l.name)
		again := p.now(t)
		require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == (round+1)*messages }, patience, tick, l.name)
		p.requireOnce(t, (round+1)*messages)
		late := time.Duration(p.count(t, `SELECT MAX(TIMESTAMPDIFF(MICROSECOND, GREATEST(m.due_at, ?), e.effected_at))
			FROM effects e JOIN outbox_messages m ON m.id = e.message_id WHERE m.id >= ?`, sqlTime(again), ids[0])) * time.Microsecond
		t.Logf("%s: within %v of their due time, or of the worker's being ready again", l.name, late)
		require.Less(t, late, 4*time.Second, l.name)
		if l.again {
			require.Equal(t, inBroker, repaired(t, w, "epoch")-rearmed, l.name)
		} else {
			require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE publishes > 1`), l.name)
			require.Zero(t, repaired(t, w, "epoch"), l.name)
		}
		require.Zero(t, repaired(t, w, "overdue")+repaired(t, w, "ahead"), l.name)
	}
}

// The strategy is changed while messages are on their way: what another one has in the broker is scheduled again, and whatever
// fires twice takes effect once.
func TestTiers_TheStrategyChangesWhileMessagesAreInFlight(t *testing.T) {
	t.Parallel()
	const messages = 500
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	p := newPlaceOn(t, broker.URL(), "changes")
	start := func(cfg worker.Config) (*worker.Worker, func() error) {
		w, stop := p.start(t, cfg, map[string]worker.Effect{topic: written})
		require.Eventually(t, ready(t, w), patience, tick)
		return w, stop
	}
	left := func(from, to time.Duration) int {
		return p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE state = 'published'
			AND due_at > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND AND due_at < UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`, from.Microseconds(), to.Microseconds())
	}
	cfg := onlyEpoch()
	cfg.Strategy = rabbitmq.Plugin
	_, stop := start(cfg)
	p.enqueue(t, dueFrom(messages, 12*time.Second, 30*time.Second)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
	require.NoError(t, stop())

	w, stop := start(tiered(8*time.Second, 4*time.Second))
	require.Eventually(t, func() bool { return repaired(t, w, "epoch")+repaired(t, w, "ahead") >= messages/2 }, patience, tick)
	require.Eventually(t, func() bool {
		return left(5*time.Second, 8*time.Second) > 20 && left(9*time.Second, time.Hour) == 0
	}, patience, tick)
	require.NoError(t, stop())

	// Re-arming rests for 30 s after the last time. What is not scheduled again by then fires where it is.
	p.exec(t, `UPDATE outbox_meta SET rearmed_at = NULL WHERE id = ?`, 1)
	cfg.Strategy = rabbitmq.Hold
	w, stop = start(cfg)
	require.Eventually(t, func() bool { return repaired(t, w, "ahead") > 20 && left(time.Second, time.Hour) == 0 }, patience, tick)
	require.NoError(t, stop())

	w, _ = start(tiered(6 * time.Second)) // other queues again
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
	t.Logf("lateness: median %v, most %v", p.lateness(t, messages/2), p.lateness(t, messages))
	require.Less(t, p.lateness(t, messages), 5*time.Second, "no more than the worker was away")
	require.Zero(t, repaired(t, w, "overdue"))
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE repairs > 0`))
}
