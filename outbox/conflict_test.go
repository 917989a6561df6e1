package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

func TestOnConflict_KeepWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	keep := func(delay time.Duration) outbox.Message {
		return l.enqueue(t, outbox.Message{Topic: "a", Key: "1", Delay: delay, Payload: []byte("new"), OnConflict: outbox.OnConflictKeep})
	}
	first := keep(time.Hour)
	require.False(t, first.Existed)
	for _, state := range []outbox.State{outbox.Scheduled, outbox.Published, outbox.Dead} {
		l.exec(t, "UPDATE outbox_messages SET state = ?, attempts = 7", string(state))
		before := l.record(t, first.ID)
		again := keep(0)
		require.True(t, again.Existed, state)
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, before, l.record(t, first.ID))
	}
	l.tx(t, func(tx *gorm.DB) error { return l.Cancel(t.Context(), tx, "a", "1") })
	require.False(t, keep(0).Existed, "the key is free")
	require.Equal(t, 2, l.count(t, "TRUE"))
	keyless := l.enqueue(t, outbox.Message{Topic: "a", OnConflict: outbox.OnConflictKeep})
	require.False(t, keyless.Existed)
}

func TestOnConflict_ReplaceBeginsANewGeneration(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	first := l.enqueue(t, outbox.Message{Topic: "a", Key: "1", Payload: []byte("old"), Headers: map[string]string{"h": "old"}})
	old := l.delivery(t, first.ID)
	due := time.Date(2031, 5, 6, 7, 8, 9, 123_456_000, time.UTC)
	for i, state := range []outbox.State{outbox.Scheduled, outbox.Published, outbox.Dead} {
		l.exec(t, "UPDATE outbox_messages SET state = ?, attempts = 7, repairs = 3, begins = 2, held = TRUE, last_error = 'no'", string(state))
		m := l.enqueue(t, outbox.Message{
			Topic: "a", Key: "1", DueAt: due, Payload: []byte("new"), ContentType: "text/plain", Headers: map[string]string{"h": "new"},
			OnConflict: outbox.OnConflictReplace, Untracked: true,
		})
		require.True(t, m.Existed)
		require.Equal(t, first.ID, m.ID)
		r := l.record(t, m.ID)
		require.Equal(t, outbox.Scheduled, r.State, "also if it was %s", state)
		require.EqualValues(t, i+2, r.Generation)
		require.Equal(t, due, r.DueAt)
		require.Zero(t, r.Attempts+r.Repairs)
		require.Empty(t, r.LastError)
		require.True(t, r.Untracked)
	}
	require.Equal(t, 1, l.count(t, `payload = 'new' AND content_type = 'text/plain' AND headers = '{"h":"new"}' AND begins = 0
		AND held = FALSE AND revision = 4 AND available_at = due_at`))
	outcome, err := l.Handle(t.Context(), old, func(*gorm.DB) error { return errEffect })
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeStale, outcome)

	soon := l.enqueue(t, outbox.Message{Topic: "a", Key: "1", Delay: -time.Hour, OnConflict: outbox.OnConflictReplace})
	require.Equal(t, 1, l.count(t, "due_at < UTC_TIMESTAMP(6) - INTERVAL 59 MINUTE AND available_at > due_at AND untracked = FALSE AND id = ?", soon.ID))
}

// What a snapshot shows may be older than what is there, either way.
func TestOnConflict_SeesBeyondItsSnapshot(t *testing.T) {
	t.Parallel()
	for _, conflict := range []outbox.OnConflict{outbox.OnConflictKeep, outbox.OnConflictReplace} {
		l := newLedger(t, outbox.StoreConfig{})
		pool, err := l.db.DB()
		require.NoError(t, err)
		l.enqueue(t, outbox.Message{Topic: "a", Key: "ended"})
		l.enqueue(t, outbox.Message{Topic: "a", Key: "taken"})
		tx, err := pool.BeginTx(t.Context(), &sqlRepeatable)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT COUNT(*) FROM outbox_messages")
		require.NoError(t, err)
		for _, key := range []string{"ended", "taken"} {
			l.tx(t, func(tx *gorm.DB) error { return l.Cancel(t.Context(), tx, "a", key) })
		}
		ids := map[string]int64{}
		for _, key := range []string{"taken", "new"} {
			ids[key] = l.enqueue(t, outbox.Message{Topic: "a", Key: key}).ID
		}
		for key, id := range ids {
			m := outbox.Message{Topic: "a", Key: key, OnConflict: conflict}
			require.NoError(t, l.SQL().Enqueue(t.Context(), tx, &m), "%s %s", conflict, key)
			require.True(t, m.Existed)
			require.Equal(t, id, m.ID)
		}
		m := outbox.Message{Topic: "a", Key: "ended", OnConflict: conflict}
		require.NoError(t, l.SQL().Enqueue(t.Context(), tx, &m))
		require.False(t, m.Existed)
		require.NoError(t, tx.Commit())
		require.Equal(t, 3, l.count(t, "live_key IS NOT NULL"))
	}
}

// A kept message waits with its effect for whoever has kept it, so that the effect sees what that one wrote.
func TestOnConflict_AKeptMessageTakesNoEffectBeforeTheTransactionHasEnded(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, "CREATE TABLE wishes (wish VARCHAR(20) NOT NULL)")
	kept := l.enqueue(t, outbox.Message{Topic: "a", Key: "1"})
	tx := l.db.Begin()
	defer tx.Rollback() // a no-op after Commit
	m := outbox.Message{Topic: "a", Key: "1", OnConflict: outbox.OnConflictKeep}
	require.NoError(t, l.Enqueue(t.Context(), tx, &m))
	require.True(t, m.Existed)
	seen := make(chan int64, 1)
	var handling sync.WaitGroup
	handling.Go(func() {
		_, err := l.SQL().Handle(t.Context(), l.delivery(t, kept.ID), func(tx *sql.Tx) error {
			var n int64
			err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM wishes").Scan(&n)
			seen <- n
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the guard waits", func() bool {
		return l.scalar(t, `SELECT COUNT(*) FROM information_schema.processlist
			WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE 'UPDATE outbox_messages%'`) > 0
	})
	require.NoError(t, tx.Exec("INSERT INTO wishes VALUES ('one more')").Error)
	require.NoError(t, tx.Commit().Error)
	require.EqualValues(t, 1, <-seen)
	handling.Wait()
}

// 32 goroutines replace one key: whoever commits last wins, no generation is lost or made twice, and the last one takes effect once.
func TestOnConflict_TheLastReplaceWins(t *testing.T) {
	t.Parallel()
	const replacers, each = 32, 15
	l := newLedger(t, outbox.StoreConfig{})
	var mu sync.Mutex
	written := map[int64]string{} // generation -> payload
	var first atomic.Int64
	var wg sync.WaitGroup
	for replacer := range replacers {
		wg.Go(func() {
			for i := range each {
				payload := fmt.Sprintf("%d/%d", replacer, i)
				id, generation := l.replace(t, outbox.Message{Topic: "test", Key: "1", Delay: time.Hour, Payload: []byte(payload)})
				if !first.CompareAndSwap(0, id) && first.Load() != id {
					t.Errorf("message %d beside %d", id, first.Load())
				}
				mu.Lock()
				if other, taken := written[generation]; taken {
					t.Errorf("generation %d is of %s and %s", generation, other, payload)
				}
				written[generation] = payload
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, l.count(t, "TRUE"))
	r := l.record(t, first.Load())
	require.EqualValues(t, replacers*each, r.Generation)
	require.Equal(t, 1, l.count(t, "payload = ?", written[r.Generation]))

	// The copies of all generations arrive, and one of them takes effect.
	l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6)")
	record := l.effects(t)
	for generation := range int64(replacers * each) {
		d := l.delivery(t, r.ID)
		d.Generation = generation + 1
		outcome, err := l.SQL().Handle(t.Context(), d, func(tx *sql.Tx) error { return record(tx, r.ID) })
		require.NoError(t, err)
		if d.Generation == r.Generation {
			require.Equal(t, outbox.OutcomeDone, outcome)
		} else {
			require.Equal(t, outbox.OutcomeStale, outcome)
		}
	}
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects"))
}

// While messages take effect, are canceled and replaced under one key, no message takes effect twice and none is lost.
func TestOnConflict_ReplaceRacesWithEffectsAndCancels(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	record := l.effects(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	l.consume(t, broker, 4, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 60 {
				l.replace(t, outbox.Message{Topic: "test", Key: "1"})
			}
		})
	}
	var withdrawn atomic.Int64
	wg.Go(func() {
		for range 60 {
			err := l.again(func(tx *gorm.DB) error { return l.Cancel(t.Context(), tx, "test", "1") })
			if err == nil {
				withdrawn.Add(1)
			} else if !errors.Is(err, outbox.ErrNoMessage) {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	eventually(t, "the last one takes effect", func() bool { return l.count(t, "live_key IS NOT NULL") == 0 })
	rows := l.count(t, "TRUE")
	require.Equal(t, int(withdrawn.Load()), l.count(t, "state = 'canceled'"))
	require.Equal(t, rows-int(withdrawn.Load()), l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, rows-int(withdrawn.Load()), l.scalar(t, "SELECT COUNT(DISTINCT message) FROM effects"))
	require.Positive(t, l.count(t, "generation > 1"), "there was a race")
}

// replace enqueues m over whatever is there, and returns its id and generation.
func (l ledger) replace(t *testing.T, m outbox.Message) (id, generation int64) {
	t.Helper()
	m.OnConflict = outbox.OnConflictReplace
	err := l.again(func(tx *gorm.DB) error {
		if err := l.Enqueue(context.WithoutCancel(t.Context()), tx, &m); err != nil {
			return err
		}
		return tx.Raw("SELECT generation FROM outbox_messages WHERE id = ?", m.ID).Scan(&generation).Error
	})
	if err != nil {
		t.Error(err)
	}
	return m.ID, generation
}

// again runs a transaction until it loses no deadlock.
func (l ledger) again(fn func(tx *gorm.DB) error) error {
	for {
		if err := l.db.Transaction(fn); !outbox.IsRetryable(err) {
			return err
		}
	}
}

func TestUntracked_EndsAtTheConfirm(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick, Horizon: 2 * time.Hour})
	now := l.enqueue(t, outbox.Message{Key: "now", Untracked: true})
	ahead := l.enqueue(t, outbox.Message{Key: "ahead", Untracked: true, Delay: time.Hour})
	tracked := l.enqueue(t, outbox.Message{Key: "tracked", Delay: time.Hour})
	for _, m := range []outbox.Message{now, ahead} {
		eventually(t, m.Key, func() bool { return l.record(t, m.ID).State == outbox.Done })
		r := l.record(t, m.ID)
		require.Equal(t, 1, r.Publishes)
		require.False(t, r.PublishedAt.IsZero())
		require.False(t, r.FinishedAt.IsZero())
		l.tx(t, func(tx *gorm.DB) error {
			require.ErrorIs(t, l.Cancel(t.Context(), tx, "test", m.Key), outbox.ErrNoMessage)
			return nil
		})
		l.enqueue(t, outbox.Message{Key: m.Key, Delay: 3 * time.Hour}) // its key is free
	}
	eventually(t, "the tracked one is published", func() bool { return l.record(t, tracked.ID).State == outbox.Published })
	require.True(t, l.record(t, tracked.ID).FinishedAt.IsZero())
	require.Equal(t, 2, l.count(t, `state = 'done' AND untracked AND live_key IS NULL
		AND available_at BETWEEN finished_at + INTERVAL 167 HOUR AND finished_at + INTERVAL 169 HOUR`), "and is purged like any other")

	outcome, err := l.Handle(t.Context(), l.delivery(t, now.ID), func(*gorm.DB) error {
		t.Error("the effect ran")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDuplicate, outcome)

	// A new life of the broker, and time, bring back what is tracked and nothing else.
	l.exec(t, "UPDATE outbox_meta SET broker_epoch = broker_epoch + 1")
	l.exec(t, "UPDATE outbox_messages SET available_at = UTC_TIMESTAMP(6) WHERE untracked")
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 1, report.Of(outbox.FoundEpoch).Found)
	report, err = rec.Purge(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 2, report.Purged)
}
