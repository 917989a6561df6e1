package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

// fresh enqueues n messages and returns their deliveries.
func (l ledger) fresh(t *testing.T, n int) []outbox.Delivery {
	t.Helper()
	ds := make([]outbox.Delivery, n)
	for i := range ds {
		ds[i] = l.delivery(t, l.enqueue(t, outbox.Message{Key: fmt.Sprint(i)}).ID)
	}
	return ds
}

func outcomes(t *testing.T, results []outbox.Result) []outbox.Outcome {
	t.Helper()
	out := make([]outbox.Outcome, len(results))
	for i, r := range results {
		require.NoError(t, r.Err, i)
		out[i] = r.Outcome
	}
	return out
}

func TestHandleBatch_CommitsManyEffectsInOneTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	ds := l.fresh(t, 50)
	var given [][]outbox.Delivery
	effect := func(tx *sql.Tx, ds []outbox.Delivery) error {
		given = append(given, ds)
		for _, d := range ds {
			if err := record(tx, d.ID); err != nil {
				return err
			}
		}
		return nil
	}
	got := outcomes(t, l.SQL().HandleBatch(t.Context(), ds, effect))
	require.Equal(t, slices.Repeat([]outbox.Outcome{outbox.OutcomeDone}, 50), got)
	require.Equal(t, [][]outbox.Delivery{ds}, given, "once, with all, in their order")
	require.Equal(t, 50, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, 50, l.count(t, "state = 'done' AND live_key IS NULL AND finished_at IS NOT NULL AND available_at > UTC_TIMESTAMP(6) + INTERVAL 6 DAY"))

	got = outcomes(t, l.SQL().HandleBatch(t.Context(), ds, effect))
	require.Equal(t, slices.Repeat([]outbox.Outcome{outbox.OutcomeDuplicate}, 50), got)
	require.Len(t, given, 1)
	require.Empty(t, l.SQL().HandleBatch(t.Context(), nil, effect))
}

// A mixed lot comes to the same end, row by row, as when each is handled alone.
func TestHandleBatch_MakesOfEachWhatHandleDoes(t *testing.T) {
	t.Parallel()
	alone, together := newLedger(t, outbox.StoreConfig{MaxAttempts: 2}), newLedger(t, outbox.StoreConfig{MaxAttempts: 2})
	prepare := func(l ledger) (ds []outbox.Delivery) {
		l.effects(t)
		for i, change := range []func(d *outbox.Delivery){
			nil, nil,
			func(d *outbox.Delivery) {
				l.exec(t, "UPDATE outbox_messages SET state = 'canceled', live_key = NULL WHERE id = ?", d.ID)
			},
			func(d *outbox.Delivery) { d.Headers = map[string]string{"fail": "yes"} },
			nil,
			func(d *outbox.Delivery) { d.Store = "other" },
			func(d *outbox.Delivery) { l.exec(t, "UPDATE outbox_messages SET generation = 2 WHERE id = ?", d.ID) },
			func(d *outbox.Delivery) { d.Redeliveries = 1 },
			func(d *outbox.Delivery) {
				l.exec(t, "UPDATE outbox_messages SET state = 'published', attempts = 1 WHERE id = ?", d.ID)
				d.Attempt = 1
				d.Headers = map[string]string{"fail": "panic"}
			},
			func(d *outbox.Delivery) { d.ID = 1 << 40 },
			func(d *outbox.Delivery) {
				l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE id = ?", d.ID)
			},
			nil,
			func(d *outbox.Delivery) { d.Key = "other" },
			func(d *outbox.Delivery) { *d = ds[0] }, // a second copy
			func(d *outbox.Delivery) { d.Headers = map[string]string{"fail": "exit"} },
			nil, nil, nil,
		} {
			d := l.delivery(t, l.enqueue(t, outbox.Message{Key: fmt.Sprint(i)}).ID)
			if change != nil {
				change(&d)
			}
			ds = append(ds, d)
		}
		return ds
	}
	effect := func(tx *sql.Tx, ds []outbox.Delivery) error {
		for _, d := range ds {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO effects VALUES (?, UTC_TIMESTAMP(6))", d.ID); err != nil {
				return err
			}
			switch d.Headers["fail"] {
			case "yes":
				return errEffect
			case "panic":
				panic("effect")
			case "exit":
				runtime.Goexit()
			}
		}
		return nil
	}
	var one []outbox.Outcome
	for _, d := range prepare(alone) {
		outcome, err := alone.SQL().Handle(t.Context(), d, func(tx *sql.Tx) error { return effect(tx, []outbox.Delivery{d}) })
		require.NoError(t, err)
		one = append(one, outcome)
	}
	require.Equal(t, one, outcomes(t, together.SQL().HandleBatch(t.Context(), prepare(together), effect)))
	for _, what := range []string{
		"SELECT id, state, generation, attempts, repairs, held, live_key IS NULL, LEFT(COALESCE(last_error, ''), 20) FROM outbox_messages ORDER BY id",
		"SELECT message FROM effects ORDER BY message",
		"SELECT reason FROM outbox_unrouted ORDER BY reason",
	} {
		require.Equal(t, alone.asked(t, what), together.asked(t, what), what)
	}
}

// asked returns a query's rows, to be compared.
func (l ledger) asked(t *testing.T, query string) (rows []map[string]any) {
	t.Helper()
	require.NoError(t, l.db.Raw(query).Scan(&rows).Error)
	return rows
}

func TestHandleBatch_AFailingEffectCostsItsNeighboursNoAttempt(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	ds := l.fresh(t, 64)
	runs := 0
	results := l.SQL().HandleBatch(t.Context(), ds, func(tx *sql.Tx, given []outbox.Delivery) error {
		runs++
		for _, d := range given {
			if err := record(tx, d.ID); err != nil {
				return err
			}
			if d.ID == ds[21].ID {
				return errEffect
			}
		}
		return nil
	})
	for i, outcome := range outcomes(t, results) {
		want := outbox.OutcomeDone
		if i == 21 {
			want = outbox.OutcomeRetry
		}
		require.Equal(t, want, outcome, i)
	}
	require.Equal(t, 63, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, 1, l.count(t, "attempts = 1 AND state = 'scheduled'"))
	require.Equal(t, 63, l.count(t, "attempts = 0 AND state = 'done'"))
	require.LessOrEqual(t, runs, 14, "halved: not each one alone")
}

// An effect that ends the transaction has committed the guards of all, or of none.
func TestHandleBatch_NoticesAnEndedTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string
		err       error
		outcome   outbox.Outcome
		done      int
	}{
		"rolled back":               {"ROLLBACK", nil, outbox.OutcomeRetry, 0},
		"committed":                 {"COMMIT", nil, outbox.OutcomeDone, 4},
		"committed, with an error":  {"COMMIT", errEffect, outbox.OutcomeRetry, 0},
		"by a statement that does":  {"CREATE TABLE ended (id INT)", nil, outbox.OutcomeDone, 4},
		"rolled back with an error": {"ROLLBACK", errEffect, outbox.OutcomeRetry, 0},
	} {
		l := newLedger(t, outbox.StoreConfig{})
		ds := l.fresh(t, 4)
		results := l.SQL().HandleBatch(t.Context(), ds, func(tx *sql.Tx, _ []outbox.Delivery) error {
			_, err := tx.ExecContext(t.Context(), c.statement)
			return errors.Join(err, c.err)
		})
		require.Equal(t, slices.Repeat([]outbox.Outcome{c.outcome}, 4), outcomes(t, results), name)
		require.Equal(t, c.done, l.count(t, "state = 'done'"), name)
		require.Equal(t, 4-c.done, l.count(t, "state = 'scheduled' AND attempts = 1"), name)
	}
}

// A row that somebody has locked does not keep the others waiting: they have taken effect when it is looked at.
func TestHandleBatch_DoesNotWaitForALockedRow(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ds := l.fresh(t, 5)
	holder := l.db.Begin()
	require.NoError(t, holder.Exec("SELECT id FROM outbox_messages WHERE id = ? FOR UPDATE", ds[2].ID).Error)
	var given []outbox.Delivery
	results := make(chan []outbox.Result, 1)
	go func() {
		results <- l.HandleBatch(t.Context(), ds, func(_ *gorm.DB, ds []outbox.Delivery) error {
			given = append(given, ds...)
			return nil
		})
	}()
	eventually(t, "the others are done", func() bool { return l.count(t, "state = 'done'") == 4 })
	require.NoError(t, holder.Rollback().Error)
	require.Equal(t, slices.Repeat([]outbox.Outcome{outbox.OutcomeDone}, 5), outcomes(t, <-results))
	require.Len(t, given, 5)
}

func TestHandleBatch_WritesNothingWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ds := l.fresh(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for i, r := range l.HandleBatch(ctx, ds, func(tx *gorm.DB, _ []outbox.Delivery) error {
		<-tx.Statement.Context.Done()
		return tx.Statement.Context.Err()
	}) {
		require.ErrorIs(t, r.Err, context.DeadlineExceeded, i)
		require.Empty(t, r.Outcome, i)
	}
	require.Equal(t, 3, l.count(t, "state = 'scheduled' AND attempts = 0 AND begins = 0"))
}

// Copies of the same messages in different orders, from many goroutines, with effects that meet in each other's rows.
func TestHandleBatch_RacesCommitEachEffectOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	l.exec(t, "CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL)")
	l.exec(t, "INSERT INTO counters VALUES (0, 0), (1, 0), (2, 0), (3, 0)")
	const n = 120
	ds := l.fresh(t, n)
	effect := func(tx *sql.Tx, ds []outbox.Delivery) error {
		for _, d := range ds {
			if err := record(tx, d.ID); err != nil {
				return err
			}
			if _, err := tx.ExecContext(t.Context(), "UPDATE counters SET n = n + 1 WHERE id = ?", d.ID%4); err != nil { // in any order: deadlocks
				return err
			}
		}
		return nil
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		done int
	)
	for g := range 4 {
		wg.Go(func() {
			mine := slices.Clone(ds)
			if g%2 == 1 {
				slices.Reverse(mine)
			}
			for chunk := range slices.Chunk(mine, 10+7*g) {
				for _, r := range l.SQL().HandleBatch(t.Context(), chunk, effect) {
					if r.Err == nil && r.Outcome == outbox.OutcomeDone {
						mu.Lock()
						done++
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, n, l.count(t, "state = 'done' AND attempts = 0"))
	require.Equal(t, n, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, n, l.scalar(t, "SELECT COUNT(DISTINCT message) FROM effects"))
	require.Equal(t, n, l.scalar(t, "SELECT SUM(n) FROM counters"))
	require.Equal(t, n, done)
}
