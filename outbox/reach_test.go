package outbox_test

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/outboxtest"
)

func TestReach_DelayIsTheLongestThatFits(t *testing.T) {
	t.Parallel()
	reach := outbox.Reach{Delays: []time.Duration{30 * time.Second, 10 * time.Second, time.Minute}}
	for left, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, 0: 0, 9 * time.Second: 0, 9899 * time.Millisecond: 0,
		9900 * time.Millisecond: 10 * time.Second, 10 * time.Second: 10 * time.Second, 29 * time.Second: 10 * time.Second,
		29_950 * time.Millisecond: 30 * time.Second, 59 * time.Second: 30 * time.Second,
		time.Minute: time.Minute, 365 * 24 * time.Hour: time.Minute,
	} {
		require.Equal(t, want, reach.Delay(left), left)
	}
	require.Zero(t, outbox.Reach{}.Delay(time.Hour))
	require.Zero(t, outbox.Reach{UpTo: time.Hour}.Delay(time.Hour))
}

// delays is a publisher that takes messages at certain delays only, and notes how far ahead each was.
type delays struct {
	*outboxtest.Broker

	reach outbox.Reach
	mu    sync.Mutex
	ahead map[int64][]time.Duration // by id
	early int                       // what was handed over too soon
}

func newDelays(t *testing.T, all ...time.Duration) *delays {
	t.Helper()
	d := &delays{Broker: newBroker(t), reach: outbox.Reach{Delays: all}, ahead: map[int64][]time.Duration{}}
	d.Refuse = func(p outbox.Publication) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		left := time.Until(p.FireAt)
		if left > 0 && left > d.reach.Delay(left) {
			// A busy machine hands over late what was on time when it was read: it has missed its delay, and is read again.
			if !slices.ContainsFunc(d.reach.Delays, func(delay time.Duration) bool { return left < delay && left > delay-time.Second }) {
				d.early++
			}
			return outbox.ErrTooSoon
		}
		d.ahead[p.ID] = append(d.ahead[p.ID], left)
		return nil
	}
	return d
}

// Reach is what a relay asks whose settings have none.
func (d *delays) Reach() outbox.Reach { return d.reach }

func (d *delays) config() outbox.RelayConfig { return outbox.RelayConfig{Poll: quick} }

func (d *delays) of(id int64) []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ahead[id]
}

// requireAhead says that each message was handed over once, not further ahead than the delay, and at least one of them that far. The others
// may have met a pause of the machine: what is handed over more than 100 ms late takes a shorter delay, or none.
func (d *delays) requireAhead(t *testing.T, ids []int64, delay time.Duration) {
	t.Helper()
	right := 0
	for _, id := range ids {
		all := d.of(id)
		require.Len(t, all, 1)
		require.LessOrEqual(t, all[0], delay)
		if all[0] > delay-time.Second {
			right++
		}
	}
	require.Positive(t, right)
}

// twenty enqueues messages of the delay and a little more each.
func (l ledger) twenty(t *testing.T, tx *gorm.DB, delay, more time.Duration) (ids []int64) {
	t.Helper()
	for i := range 20 {
		m := outbox.Message{Topic: "test", Delay: delay + time.Duration(i)*more}
		require.NoError(t, l.Enqueue(t.Context(), tx, &m))
		ids = append(ids, m.ID)
	}
	return ids
}

func TestRelay_HandsOverAtTheLongestDelayThatFits(t *testing.T) { //nolint:paralleltest // A message that is handed over 100 ms late misses its delay.
	l := newLedger(t, outbox.StoreConfig{})
	broker := newDelays(t, 4*time.Second, 9*time.Second)
	record := l.effects(t)
	l.consume(t, broker.Broker, 4, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	l.start(t, broker, broker.config())
	eventually(t, "the relay is at work", func() bool { return l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner = 'relay'") == 16 })
	groups := map[time.Duration][]int64{} // by the delay that is right
	l.tx(t, func(tx *gorm.DB) error {
		for delay, ahead := range map[time.Duration]time.Duration{
			10 * time.Second:        9 * time.Second,
			6 * time.Second:         4 * time.Second,
			2500 * time.Millisecond: 0,
			-time.Hour:              0,
		} {
			groups[ahead] = append(groups[ahead], l.twenty(t, tx, delay, 50*time.Millisecond)...)
		}
		return nil
	})
	far := l.enqueue(t, outbox.Message{Delay: time.Hour})
	eventually(t, "all take effect", func() bool { return l.count(t, "state = 'done'") == 80 })
	for ahead, ids := range groups {
		broker.requireAhead(t, ids, ahead)
	}
	require.Equal(t, outbox.Scheduled, l.record(t, far.ID).State)
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message WHERE e.at < m.due_at"))
	require.Zero(t, broker.early)
}

// No relay was there when a delay's time came, or a transaction committed after it: the next shorter delay takes the message, or its time does.
func TestRelay_WhatHasMissedItsDelayTakesAShorterOne(t *testing.T) { //nolint:paralleltest // A message that is handed over 100 ms late misses its delay.
	l := newLedger(t, outbox.StoreConfig{})
	broker := newDelays(t, 2*time.Second, 5*time.Second, 8*time.Second)
	open := l.db.Begin()
	late := l.twenty(t, open, 5500*time.Millisecond, 5*time.Millisecond)
	start := time.Now()
	var short, never []int64
	l.tx(t, func(tx *gorm.DB) error {
		short = l.twenty(t, tx, 4*time.Second, 30*time.Millisecond)
		never = l.twenty(t, tx, 1500*time.Millisecond, 10*time.Millisecond)
		return nil
	})
	l.start(t, broker, broker.config())
	eventually(t, "the time of 5 s is over", func() bool { return time.Since(start) > time.Second })
	require.NoError(t, open.Commit().Error)
	eventually(t, "all are published", func() bool { return l.count(t, "state = 'published'") == 60 })
	broker.requireAhead(t, short, 2*time.Second)
	broker.requireAhead(t, late, 2*time.Second)
	broker.requireAhead(t, never, 0)
}

// What a broker has fired too soon would be fired too soon again.
func TestRelay_HeldRowsAreNeverHandedOverForADelay(t *testing.T) { //nolint:paralleltest // A message that is handed over 100 ms late misses its delay.
	l := newLedger(t, outbox.StoreConfig{})
	broker := newDelays(t, time.Second)
	var held, free []int64
	l.tx(t, func(tx *gorm.DB) error {
		held = l.twenty(t, tx, 3*time.Second, 50*time.Millisecond)
		free = l.twenty(t, tx, 3*time.Second, 50*time.Millisecond)
		return tx.Exec("UPDATE outbox_messages SET held = TRUE WHERE id IN ?", held).Error
	})
	l.start(t, broker, broker.config())
	eventually(t, "both are published", func() bool { return l.count(t, "state = 'published'") == 40 })
	broker.requireAhead(t, free, time.Second)
	broker.requireAhead(t, held, 0)
}

// More wait for a delay than may be in flight: what is due goes out in between.
func TestRelay_WhatWaitsForADelayLeavesRoomForWhatIsDue(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	const messages = 300
	broker := newDelays(t, 6*time.Second)
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	at := now.Add(14 * time.Second) // all are to be handed over at the same time
	l.tx(t, func(tx *gorm.DB) error {
		for i := range messages {
			if err := l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Key: fmt.Sprint(i), DueAt: at}); err != nil {
				return err
			}
		}
		return nil
	})
	cfg := broker.config()
	cfg.MaxInFlight = 64
	l.start(t, broker, cfg)
	var due []int64
	for range 20 {
		due = append(due, l.enqueue(t, outbox.Message{Topic: "due"}).ID)
	}
	eventually(t, "all are published", func() bool { return l.count(t, "state = 'published'") == messages+len(due) })
	for _, id := range due {
		require.Greater(t, broker.of(id)[0], -4*time.Second, "it has not waited until the others are handed over")
	}
	require.Len(t, broker.Published(), messages+len(due))
}

// The same holds of the windows for delays as of what is due: an index range each, and no more rows than are taken.
func TestRelay_ReadsOfMillionsThatWaitOnlyWhatIsToBeHandedOver(t *testing.T) {
	t.Parallel()
	const rows = 100_000
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, due_at, available_at, created_at)
		SELECT (seq + seq DIV 100) % 16, 'test', 'text/plain', 'p', at, at, '2026-01-01' FROM (
			SELECT seq, UTC_TIMESTAMP(6) + INTERVAL seq * 30000 MICROSECOND AS at FROM `+numbers(rows)+`) AS x`)
	l.exec(t, "ANALYZE TABLE outbox_messages")
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	query, args := outbox.DelayQuery(now, 30*time.Minute)
	l.requireIndexRanges(t, query, args)
	require.NoError(t, l.db.Connection(func(tx *gorm.DB) error {
		before := handlerReads(t, tx)
		var taken []map[string]any
		require.NoError(t, tx.Raw(query, args...).Scan(&taken).Error)
		require.InDelta(t, 70, len(taken), 5, "what is due in the 2.1 s around half an hour from now")
		require.LessOrEqual(t, handlerReads(t, tx)-before, 3*len(taken)+100)
		return nil
	}))
}

// What is further ahead than any delay in use was published before the setting changed.
func TestReconciler_TakesBackWhatIsFurtherAheadThanTheLongestDelay(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 300)
	l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL IF(id <= 100, 1000, IF(id <= 200, 599, -1)) SECOND")
	l.exec(t, "UPDATE outbox_messages SET available_at = due_at + INTERVAL 30 SECOND")
	reach := outbox.Reach{Delays: []time.Duration{time.Minute, 20 * time.Minute, 10 * time.Minute}}
	rec := l.reconciler(t, outbox.ReconcileConfig{Reach: func() outbox.Reach { return reach }})
	report, again, err := rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Found()+int(again))
	reach.Delays = []time.Duration{10 * time.Minute, time.Minute}
	report, _, err = rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, report.Of(outbox.FoundAhead).Mended)
	require.Equal(t, 100, l.count(t, "id <= 100 AND state = 'scheduled' AND available_at = due_at"))
	require.Equal(t, 200, l.count(t, "id > 100 AND state = 'published'"))
}
