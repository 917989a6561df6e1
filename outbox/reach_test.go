package outbox_test

import (
	"database/sql"
	"fmt"
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
			d.early++
			return outbox.ErrTooSoon
		}
		d.ahead[p.ID] = append(d.ahead[p.ID], left)
		return nil
	}
	return d
}

func (d *delays) config() outbox.RelayConfig {
	return outbox.RelayConfig{Poll: quick, Reach: func() outbox.Reach { return d.reach }}
}

func (d *delays) of(id int64) []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ahead[id]
}

// requireAhead says that the message was handed over once, that far ahead: no more, and little less.
func (d *delays) requireAhead(t *testing.T, id int64, delay time.Duration) {
	t.Helper()
	all := d.of(id)
	require.Len(t, all, 1)
	require.LessOrEqual(t, all[0], delay)
	require.Greater(t, all[0], delay-1500*time.Millisecond) // but for a machine that is busy some 10 ms
}

func TestRelay_HandsOverAtTheLongestDelayThatFits(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newDelays(t, 4*time.Second, 9*time.Second)
	record := l.effects(t)
	l.consume(t, broker.Broker, 4, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	l.start(t, broker, broker.config())
	eventually(t, "the relay is at work", func() bool { return l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner = 'relay'") == 16 })
	want := map[int64]time.Duration{}
	l.tx(t, func(tx *gorm.DB) error {
		for delay, ahead := range map[time.Duration]time.Duration{
			11 * time.Second:       9 * time.Second,
			7 * time.Second:        4 * time.Second,
			6 * time.Second:        4 * time.Second,
			3 * time.Second:        0,
			500 * time.Millisecond: 0,
			-time.Hour:             0,
		} {
			for range 20 {
				m := outbox.Message{Topic: "test", Delay: delay}
				if err := l.Enqueue(t.Context(), tx, &m); err != nil {
					return err
				}
				want[m.ID] = ahead
			}
		}
		return nil
	})
	far := l.enqueue(t, outbox.Message{Delay: time.Hour})
	eventually(t, "all take effect", func() bool { return l.count(t, "state = 'done'") == len(want) })
	for id, ahead := range want {
		if all := broker.of(id); ahead == 0 {
			require.Len(t, all, 1)
			require.LessOrEqual(t, all[0], time.Duration(0), "held until its time")
			continue
		}
		broker.requireAhead(t, id, ahead)
	}
	require.Equal(t, outbox.Scheduled, l.record(t, far.ID).State)
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message WHERE e.at < m.due_at"))
	require.Zero(t, broker.early)
}

// No relay was there when a delay's time came, or a transaction committed after it: the next shorter delay takes the message, or its time does.
func TestRelay_WhatHasMissedItsDelayTakesAShorterOne(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newDelays(t, 2*time.Second, 5*time.Second, 8*time.Second)
	open := l.db.Begin() // commits when the time of 5 s is over
	late := outbox.Message{Topic: "test", Delay: 5500 * time.Millisecond}
	require.NoError(t, l.Enqueue(t.Context(), open, &late))
	short := l.enqueue(t, outbox.Message{Delay: 4 * time.Second})
	never := l.enqueue(t, outbox.Message{Delay: 1500 * time.Millisecond})
	l.start(t, broker, broker.config())
	sentinel := l.enqueue(t, outbox.Message{Delay: 5800 * time.Millisecond})
	eventually(t, "the time is over", func() bool { return len(broker.of(sentinel.ID)) == 1 })
	require.NoError(t, open.Commit().Error)
	eventually(t, "all are published", func() bool { return l.count(t, "state = 'published'") == 4 })
	broker.requireAhead(t, sentinel.ID, 5*time.Second)
	broker.requireAhead(t, short.ID, 2*time.Second)
	broker.requireAhead(t, late.ID, 2*time.Second)
	broker.requireAhead(t, never.ID, 0)
}

// What a broker has fired too soon would be fired too soon again.
func TestRelay_HeldRowsAreNeverHandedOverForADelay(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newDelays(t, time.Second)
	held := l.enqueue(t, outbox.Message{Delay: 3 * time.Second})
	free := l.enqueue(t, outbox.Message{Delay: 3 * time.Second})
	l.exec(t, "UPDATE outbox_messages SET held = TRUE WHERE id = ?", held.ID)
	l.start(t, broker, broker.config())
	eventually(t, "both are published", func() bool { return l.count(t, "state = 'published'") == 2 })
	broker.requireAhead(t, free.ID, time.Second)
	broker.requireAhead(t, held.ID, 0)
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
