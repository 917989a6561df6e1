package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// The database goes away under running effects, and deliveries arrive meanwhile: they are held, do not travel to the broker and
// back, and no attempt is spent.
func TestWorker_HoldsDeliveriesWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	const messages, workers, prefetch = 100, 4, 16
	mariadb := devtest.MariaDB(t)
	counts, amqpURL := metered(t, devtest.AMQP(t))
	p := newPlaceWith(t, mariadb.DSN("test"), amqpURL, devtest.Namespace(t, topic))
	begun, goOn := make(chan struct{}, 1000), make(chan struct{})
	w, _ := p.start(t, worker.Config{Workers: workers, Prefetch: prefetch, ReconcileSchedule: "@yearly"},
		map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return written(ctx, tx, d)
		}})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, repeat(messages)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages-workers }, patience, tick)
	for range workers {
		<-begun
	}
	require.NoError(t, mariadb.Kill())
	close(goOn)
	require.Never(t, func() bool {
		delivered, acked, _ := counts.read()
		return delivered > prefetch || acked > 0
	}, 8*time.Second, tick, "held, and no loop")

	require.NoError(t, mariadb.Start(t.Context()))
	require.Eventually(t, func() bool {
		n := 0
		err := p.pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outbox_messages WHERE state = 'done'`).Scan(&n)
		return err == nil && n == messages
	}, patience, tick)
	p.requireOnce(t, messages)
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0`))
	require.Eventually(t, func() bool {
		_, acked, _ := counts.read()
		return acked >= messages
	}, patience, tick)
	delivered, _, worst := counts.read()
	require.Less(t, delivered, messages+workers+1, "none came twice but what was published twice, as it could not be settled")
	require.Equal(t, prefetch, worst)
	counts.requireRight(t)
}

// The connection dies under running effects. What they do counts, their acknowledgements go nowhere, and the copies that
// come over the next connection while they still run find it done.
func TestWorker_FinishesEffectsWhoseConnectionDied(t *testing.T) {
	t.Parallel()
	const messages, workers = 20, 4
	counts, amqpURL := metered(t, devtest.AMQP(t))
	p := newPlaceOn(t, amqpURL, devtest.Namespace(t, topic))
	begun, goOn := make(chan struct{}, 1000), make(chan struct{})
	w, _ := p.start(t, worker.Config{Workers: workers, Prefetch: workers, ReconcileSchedule: "@yearly"},
		map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
				return ctx.Err()
			}
			return written(ctx, tx, d)
		}})
	require.Eventually(t, ready(t, w), patience, tick)
	p.enqueue(t, repeat(messages)...)
	for range workers {
		<-begun
	}
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages-workers }, patience, tick)
	counts.cut()
	require.Eventually(t, func() bool {
		delivered, _, _ := counts.read()
		return delivered == 2*workers && ready(t, w)()
	}, patience, tick, "they are given out again")
	close(goOn)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	require.Eventually(t, func() bool {
		_, acked, _ := counts.read()
		return acked >= messages
	}, patience, tick)
	p.requireOnce(t, messages)
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0 OR begins > 0`))
	counts.requireRight(t)
	require.True(t, containsLine(get(t, w.Routes(), "/metrics", "").Body.String(),
		fmt.Sprintf(`duebox_deliveries_total{outcome="duplicate",topic=%q} %d`, topic, workers)))
}

// What was delivered is told apart by deliveries_total, whoever put it on the broker.
func TestWorker_TellsDeliveriesApart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Millisecond }},
		map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
			if string(d.Payload) == "bad" {
				panic("as always")
			}
			return written(ctx, tx, d)
		}})
	require.Eventually(t, ready(t, w), patience, tick)
	store, err := p.store.StoreID(t.Context())
	require.NoError(t, err)
	ids := p.enqueue(t,
		outbox.Message{Key: "good"},
		outbox.Message{Key: "bad", Payload: []byte("bad")}, // one retry, then dead
		outbox.Message{Key: "early", Delay: time.Hour},
		outbox.Message{Key: "stale", Delay: time.Hour},
		outbox.Message{Key: "canceled", Delay: time.Hour},
	)
	require.NoError(t, p.db.Transaction(func(tx *gorm.DB) error {
		if err := p.store.Reschedule(t.Context(), tx, topic, "stale", time.Now().Add(2*time.Hour)); err != nil {
			return err
		}
		return p.store.Cancel(t.Context(), tx, topic, "canceled")
	}))
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == 1 && p.inState(t, outbox.Dead) == 1 }, patience, tick)

	ch, err := devtest.Dial(t, p.amqpURL).Channel()
	require.NoError(t, err)
	forge := func(store string, id int64, key string) {
		headers := amqp.Table{
			"duebox-id": id, "duebox-store": store, "duebox-key": key, "duebox-generation": int64(1), "duebox-attempt": int64(0),
			"duebox-due": time.Now().UnixMicro(),
		}
		require.NoError(t, ch.PublishWithContext(t.Context(), p.namespace+".deliver", topic, false, false, amqp.Publishing{Headers: headers}))
	}
	for i, key := range []string{"good", "bad", "early", "stale", "canceled"} {
		forge(store, ids[i], key)
	}
	forge("another", ids[0], "good")
	forge(store, 1<<40, "good")
	require.NoError(t, ch.PublishWithContext(t.Context(), p.namespace+".deliver", topic, false, false, amqp.Publishing{}))

	var metrics string
	for outcome, want := range map[outbox.Outcome]int{
		outbox.OutcomeDone: 1, outbox.OutcomeRetry: 1, outbox.OutcomeDead: 2, outbox.OutcomeDuplicate: 1, outbox.OutcomeEarly: 1,
		outbox.OutcomeStale: 1, outbox.OutcomeCanceled: 1, outbox.OutcomeForeign: 1, outbox.OutcomeUnknown: 1,
	} {
		require.Eventually(t, func() bool {
			metrics = get(t, w.Routes(), "/metrics", "").Body.String()
			return containsLine(metrics, fmt.Sprintf("duebox_deliveries_total{outcome=%q,topic=%q} %d\n", outcome, topic, want))
		}, patience, tick, "%s: %s", outcome, &metrics)
	}
	require.True(t, containsLine(metrics, fmt.Sprintf("duebox_malformed_total{queue=%q} 1", p.namespace+".work."+topic)))
	require.Equal(t, 3, p.count(t, `SELECT COUNT(*) FROM outbox_unrouted WHERE reason IN ('foreign', 'unknown', 'malformed')`))
	p.requireOnce(t, 1)
	early, err := p.store.LookupID(t.Context(), ids[2])
	require.NoError(t, err)
	require.Equal(t, outbox.Scheduled, early.State)
}

// TestScenario10_RestartWithABurstOfExpiredMessages: restart with 20,000 expired messages: the burst is absorbed, prefetch
// holds, nothing is lost.
func TestScenario10_RestartWithABurstOfExpiredMessages(t *testing.T) {
	t.Parallel()
	const messages, workers, prefetch = 20_000, 8, 50
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	counts, amqpURL := metered(t, broker.URL())
	p := newPlaceOn(t, amqpURL, "burst")
	var once sync.Once
	down := make(chan struct{})
	p.enqueue(t, repeat(messages)...)
	begun := time.Now()
	p.exec(t, `UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 20 SECOND, available_at = due_at`)
	w, _ := p.start(t, worker.Config{
		Workers: workers, Prefetch: prefetch, ReconcileSchedule: "@yearly",
		BatchEffects: map[string]worker.BatchEffect{topic: func(ctx context.Context, tx *gorm.DB, ds []outbox.Delivery) error {
			once.Do(func() { close(down) })
			for _, d := range ds {
				if err := written(ctx, tx, d); err != nil {
					return err
				}
			}
			return nil
		}},
	}, nil)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Published) == messages }, patience, tick)
	published := time.Now()
	require.NoError(t, broker.Stop(t.Context()))
	select {
	case <-down:
		t.Fatal("they came due before all of them were published")
	default:
	}
	require.Eventually(t, func() bool {
		return p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE due_at > UTC_TIMESTAMP(6)`) == 0
	}, patience, tick)
	require.NoError(t, broker.Start(t.Context()))
	back := time.Now()
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, 2*patience, 10*tick)
	t.Logf("published in %v, absorbed in %v", published.Sub(begun).Round(time.Second), time.Since(back).Round(time.Second))
	p.requireOnce(t, messages)
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0`))
	delivered, _, worst := counts.read()
	t.Logf("%d deliveries", delivered)
	require.Equal(t, prefetch, worst, "as many as allowed, and not one more")
	counts.requireRight(t)
	require.Eventually(t, ready(t, w), patience, tick)
}
