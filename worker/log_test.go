package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// lines is a log that a test can wait for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func newLines(level slog.Level) (lines, *slog.Logger) {
	l := make(lines, 10_000)
	return l, slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// next waits for the next line with the message.
func (l lines) next(t *testing.T, message string) (said map[string]any) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-l:
			said = nil
			require.NoError(t, json.Unmarshal([]byte(line), &said))
			if said["msg"] == message {
				return said
			}
		case <-timeout:
			t.Fatalf("no line %q", message)
		}
	}
}

func TestWorker_LogsEachDeliveryWithItsMessage(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	log, logger := newLines(slog.LevelDebug)
	p.start(t, worker.Config{Log: logger, Backoff: func(int) time.Duration { return time.Millisecond }}, map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
		if d.Attempt == 0 {
			return errors.New("not yet")
		}
		return written(ctx, tx, d)
	}})
	id := p.enqueue(t, outbox.Message{Topic: topic, Key: "cart-7"})[0]
	for _, outcome := range []string{"retry", "done"} {
		said := log.next(t, "delivery handled")
		require.InDelta(t, id, said["id"], 0)
		require.Equal(t, topic, said["topic"])
		require.Equal(t, "cart-7", said["key"])
		require.Equal(t, outcome, said["outcome"])
		if outcome == "done" {
			require.Positive(t, said["lateness_seconds"])
		} else {
			require.NotContains(t, said, "lateness_seconds", "it took no effect")
		}
	}
}

func TestWorker_SaysWhyAnEffectIsTriedAgainAndWhyAMessageIsDead(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	log, logger := newLines(slog.LevelInfo)
	p.start(t, worker.Config{Log: logger, MaxAttempts: 3, Backoff: func(int) time.Duration { return time.Millisecond }}, map[string]worker.Effect{
		topic: func(_ context.Context, _ *gorm.DB, d outbox.Delivery) error {
			if d.Attempt == 2 {
				panic("at last")
			}
			return errors.New("not today")
		},
	})
	id := p.enqueue(t, outbox.Message{Topic: topic, Key: "cart-7"})[0]
	for _, want := range []struct {
		level, message, why string
		attempt             int
	}{
		{"WARN", "delivery had no effect, its message is tried again", "not today", 1}, // and the second is counted only
		{"ERROR", "message is dead and waits for an operator", "panic: at last", 3},
	} {
		said := log.next(t, want.message)
		require.Equal(t, want.level, said["level"])
		require.InDelta(t, id, said["id"], 0)
		require.Equal(t, topic, said["topic"])
		require.Equal(t, "cart-7", said["key"])
		require.InDelta(t, want.attempt, said["attempt"], 0)
		require.Contains(t, said["error"], want.why)
	}
}

func TestWorker_SaysThatDeliveriesOfAnotherLedgerArrive(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	log, logger := newLines(slog.LevelInfo)
	p.start(t, worker.Config{Log: logger}, map[string]worker.Effect{topic: written})
	log.next(t, "connected for publishing")
	// The same broker and namespace, another database.
	other := newPlaceOn(t, p.amqpURL, p.namespace)
	other.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	store, err := other.store.StoreID(t.Context())
	require.NoError(t, err)
	other.enqueue(t, repeat(50)...) // both consume the queue
	said := log.next(t, "deliveries of another ledger arrive and are kept: two installations share NAMESPACE, or the database was replaced")
	require.Equal(t, "WARN", said["level"])
	require.Equal(t, p.namespace, said["namespace"])
	require.Equal(t, store, said["store"])
	require.Positive(t, p.count(t, `SELECT COUNT(*) FROM outbox_unrouted WHERE reason = 'foreign' AND message_id = ?`, fmt.Sprintf("%s-%v", store, said["id"])))
}

func TestWorker_SaysThatItWaitsForTheTables(t *testing.T) {
	t.Parallel()
	db, err := database.Open(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	log, logger := newLines(slog.LevelInfo)
	p := &place{db: db, amqpURL: devtest.AMQP(t), namespace: devtest.Namespace(t, topic)}
	w, _ := p.start(t, worker.Config{Log: logger}, map[string]worker.Effect{topic: written})
	for _, similar := range []bool{false, true} { // the second after a while
		said := log.next(t, "waiting for the database's tables")
		require.Equal(t, "WARN", said["level"])
		require.Equal(t, "no tables: run duebox migrate", said["error"])
		require.Equal(t, similar, said["similar"] != nil, said)
	}
	require.NoError(t, database.Migrate(t.Context(), db, database.Set{Table: "goose_outbox", Files: outbox.Migrations}))
	require.Eventually(t, ready(t, w), patience, tick, "without a restart")
}

func TestWorker_HasOneName(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	id, err := p.store.RequestRun(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		run, err := p.store.LookupRun(t.Context(), id)
		require.NoError(t, err)
		return run.State == outbox.RunCompleted
	}, patience, tick)
	require.Equal(t, 1, p.count(t, `SELECT COUNT(*) FROM outbox_relays l JOIN outbox_reconcile_runs r ON r.owner = l.owner WHERE r.id = ?`, id))
}
