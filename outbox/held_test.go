package outbox_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

func never() outbox.Reach { return outbox.Reach{} }

// timed notes when each message was handed over, relative to its time.
type timed struct {
	outbox.Publisher

	mu   sync.Mutex
	late []time.Duration
}

func (p *timed) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	now := time.Now()
	p.mu.Lock()
	for _, m := range batch {
		p.late = append(p.late, now.Sub(m.FireAt))
	}
	p.mu.Unlock()
	return p.Publisher.Publish(ctx, batch)
}

// The precision does not depend on the pause between two looks.
func TestRelay_HandsHeldMessagesOverAtTheirTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	record := l.effects(t)
	l.consume(t, broker, 4, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	publisher := &timed{Publisher: broker}
	l.start(t, publisher, outbox.RelayConfig{Poll: 500 * time.Millisecond, Reach: never})
	const messages = 300
	for i := range messages {
		l.enqueue(t, outbox.Message{Delay: 2*time.Second + time.Duration(i)*7*time.Millisecond})
	}
	eventually(t, "all take effect", func() bool { return l.count(t, "state = 'done'") == messages })
	require.Len(t, publisher.late, messages, "each once")
	for _, late := range publisher.late {
		require.GreaterOrEqual(t, late, time.Duration(0), "never early")
	}
	require.Less(t, middle(publisher.late), 50*time.Millisecond)
	require.Equal(t, messages, l.scalar(t, "SELECT COUNT(*) FROM effects"))
}

// What was read ahead is only a reading.
func TestRelay_WhatIsWithdrawnInTheLastSecondTakesNoEffect(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	var ran atomic.Int32
	l.consume(t, broker, 1, func(*sql.Tx, outbox.Delivery) error { ran.Add(1); return nil })
	l.start(t, broker, outbox.RelayConfig{Poll: quick, Reach: never})
	canceled := l.enqueue(t, outbox.Message{Key: "canceled", Delay: 1500 * time.Millisecond})
	later := l.enqueue(t, outbox.Message{Key: "later", Delay: 1500 * time.Millisecond})
	l.enqueue(t, outbox.Message{Key: "sentinel", Delay: 1700 * time.Millisecond})
	eventually(t, "the last half second", func() bool {
		return l.count(t, "id = ? AND due_at < UTC_TIMESTAMP(6) + INTERVAL 500000 MICROSECOND", canceled.ID) == 1
	})
	l.tx(t, func(tx *gorm.DB) error { return l.Cancel(t.Context(), tx, "test", "canceled") })
	l.tx(t, func(tx *gorm.DB) error {
		return l.Reschedule(t.Context(), tx, "test", "later", time.Now().Add(time.Hour))
	})
	eventually(t, "what came after them is done", func() bool { return l.count(t, "state = 'done'") == 1 })
	require.Equal(t, outbox.Canceled, l.record(t, canceled.ID).State)
	require.Equal(t, outbox.Scheduled, l.record(t, later.ID).State)
	require.EqualValues(t, 1, ran.Load())
}

// The strategy changes while messages wait in the broker for their time.
func TestReconciler_TakesBackWhatWasPublishedAhead(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 400)
	l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL IF(id <= 300, 600, -1) SECOND")
	l.exec(t, "UPDATE outbox_messages SET available_at = due_at + INTERVAL 30 SECOND")
	reach := outbox.Reach{UpTo: time.Hour}
	rec := l.reconciler(t, outbox.ReconcileConfig{Reach: func() outbox.Reach { return reach }})
	report, again, err := rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Found()+int(again))

	reach = outbox.Reach{}
	report, _, err = rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Equal(t, 300, report.Of(outbox.FoundAhead).Mended)
	require.Equal(t, 300, l.count(t, "id <= 300 AND state = 'scheduled' AND available_at = due_at"))
	require.Equal(t, 100, l.count(t, "id > 300 AND state = 'published'"), "what came due is in a queue")

	// A restart loses nothing that is in a queue, an empty disk does.
	for _, empty := range []bool{false, true} { // one after the other, at once: a change of strategy needs no rest
		epoch, err := l.Epoch(t.Context())
		require.NoError(t, err)
		_, err = l.Raise(t.Context(), epoch, empty)
		require.NoError(t, err)
		report, _, err = rec.Rearm(t.Context())
		require.NoError(t, err)
		want := 0
		if empty {
			want = 100
		}
		require.Equal(t, want, report.Of(outbox.FoundEpoch).Mended, "empty %t", empty)
	}
}
