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

// handleAll is what a consumer does: deliveries together, and what that leaves alone.
func (l ledger) handleAll(t *testing.T, ds []outbox.Delivery, effect func(tx *sql.Tx, ds []outbox.Delivery) error) []outbox.Result {
	t.Helper()
	results := l.SQL().HandleBatch(t.Context(), ds, effect)
	require.Len(t, results, len(ds))
	for i, r := range results {
		if errors.Is(r.Err, outbox.ErrAlone) {
			require.Empty(t, r.Outcome)
			results[i] = l.SQL().HandleBatch(t.Context(), ds[i:i+1], effect)[0]
		}
	}
	return results
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

	got = outcomes(t, l.handleAll(t, ds, effect))
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
	require.Equal(t, one, outcomes(t, together.handleAll(t, prepare(together), effect)))
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
	results := l.handleAll(t, ds, func(tx *sql.Tx, given []outbox.Delivery) error {
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

// An effect that commits has committed the guards of all. One that rolls back, or whose deadlock did, is divided like any that fails.
func TestHandleBatch_NoticesAnEndedTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string
		err       error
		outcome   outbox.Outcome // of the one that is to blame
		others    outbox.Outcome
	}{
		"rolled back":               {"ROLLBACK", nil, outbox.OutcomeRetry, outbox.OutcomeDone},
		"rolled back with an error": {"ROLLBACK", errEffect, outbox.OutcomeRetry, outbox.OutcomeDone},
		"committed":                 {"COMMIT", nil, outbox.OutcomeDone, outbox.OutcomeDone},
		"committed, with an error":  {"COMMIT", errEffect, outbox.OutcomeRetry, outbox.OutcomeRetry},
		"by a statement that does":  {"CREATE TABLE ended (id INT)", nil, outbox.OutcomeDone, outbox.OutcomeDone},
	} {
		l := newLedger(t, outbox.StoreConfig{})
		ds := l.fresh(t, 4)
		results := l.handleAll(t, ds, func(tx *sql.Tx, given []outbox.Delivery) error {
			if !slices.ContainsFunc(given, func(d outbox.Delivery) bool { return d.ID == ds[2].ID }) {
				return nil
			}
			_, err := tx.ExecContext(t.Context(), c.statement)
			return errors.Join(err, c.err)
		})
		require.Equal(t, []outbox.Outcome{c.others, c.others, c.outcome, c.others}, outcomes(t, results), name)
		for i, d := range ds {
			r := l.record(t, d.ID)
			require.Equal(t, results[i].Outcome == outbox.OutcomeDone, r.State == outbox.Done, name)
			require.Equal(t, results[i].Outcome == outbox.OutcomeRetry, r.Attempts == 1, name)
		}
	}
}

// What is locked, was redelivered, is a copy or too early is left alone, at once and untouched.
func TestHandleBatch_LeavesAloneWhatMayTakeLong(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ds := l.fresh(t, 7)
	holder := l.db.Begin()
	require.NoError(t, holder.Exec("SELECT id FROM outbox_messages WHERE id = ? FOR UPDATE", ds[2].ID).Error)
	ds[3].Redeliveries = 1
	ds[4] = ds[0]
	l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 900000 MICROSECOND WHERE id = ?", ds[5].ID)
	before := l.rows(t)
	start := time.Now()
	results := l.SQL().HandleBatch(t.Context(), ds, func(*sql.Tx, []outbox.Delivery) error { return nil })
	require.Less(t, time.Since(start), 800*time.Millisecond, "nothing was waited for")
	for i, r := range results {
		if i == 0 || i == 1 || i == 6 {
			require.Equal(t, outbox.Result{Outcome: outbox.OutcomeDone}, r, i)
		} else {
			require.Equal(t, outbox.Result{Err: outbox.ErrAlone}, r, i)
		}
	}
	after := l.rows(t)
	for _, i := range []int{2, 3, 5} {
		require.Equal(t, before[i], after[i], i)
	}
	require.NoError(t, holder.Rollback().Error)
}

// An effect that waits in vain for a row of its own, which somebody has locked, leaves all alone: so each has time of its own to find out.
func TestHandleBatch_LeavesAloneWhatWaitsForOtherRows(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, "CREATE TABLE products (id INT PRIMARY KEY)")
	l.exec(t, "INSERT INTO products VALUES (1)")
	ds := l.fresh(t, 3)
	holder := l.db.Begin()
	require.NoError(t, holder.Exec("SELECT id FROM products WHERE id = 1 FOR UPDATE").Error)
	effect := func(tx *sql.Tx, ds []outbox.Delivery) error {
		if !slices.ContainsFunc(ds, func(d outbox.Delivery) bool { return d.Key == "1" }) {
			return nil
		}
		_, err := tx.ExecContext(t.Context(), "UPDATE products SET id = id WHERE id = 1")
		return err
	}
	for i, r := range l.SQL().HandleBatch(t.Context(), ds, effect) {
		require.Equal(t, outbox.Result{Err: outbox.ErrAlone}, r, i)
	}
	want := []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeBusy, outbox.OutcomeDone}
	require.Equal(t, want, outcomes(t, l.handleAll(t, ds, effect)))
	require.Zero(t, l.count(t, "attempts > 0"))
	require.NoError(t, holder.Rollback().Error)
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
				for _, r := range l.handleAll(t, chunk, effect) {
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
