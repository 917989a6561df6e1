package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
)

const quick = 5 * time.Millisecond

// Scenario 1: delays of 0, -1 s, 1.5 ms, 24 d, 25 d, 49 d, 60 d, 365 d: none is early; each keeps its exact due time.
func TestScenario01_EveryDelayIsKeptExactly(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	const day = 24 * time.Hour
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	due := map[int64]time.Time{}
	far := 0
	for _, delay := range []time.Duration{0, -time.Second, 1500 * time.Microsecond, 24 * day, 25 * day, 49 * day, 50 * day, 60 * day, 365 * day, 100 * 365 * day} {
		at := now.Add(delay).Add(123 * time.Nanosecond)
		m := l.enqueue(t, outbox.Message{DueAt: at})
		due[m.ID] = at.Truncate(time.Microsecond).Add(time.Microsecond)
		require.Equal(t, due[m.ID], l.record(t, m.ID).DueAt)
		if delay > time.Hour {
			far++
		}
	}
	stop := l.start(t, broker, outbox.RelayConfig{Poll: quick, Horizon: 30 * day})
	eventually(t, "what is due within the horizon is published", func() bool { return len(broker.Published()) == 5 })
	stop()
	for _, p := range broker.Published() {
		require.Equal(t, due[p.ID], p.DueAt)
		left := time.Until(p.FireAt)
		now, err := l.Now(t.Context())
		require.NoError(t, err)
		require.InDelta(t, max(due[p.ID].Sub(now), 0).Seconds(), max(left, 0).Seconds(), 0.5)
		require.GreaterOrEqual(t, left, due[p.ID].Sub(now)-time.Millisecond, "never early")
	}
	require.Equal(t, far-2, l.count(t, "state = 'scheduled'"), "the far future waits in the ledger")
}

// Scenario 7: reschedule +5 s to +20 s, and cancel another: the old message is a no-op, nothing fires at 5 s.
func TestScenario07_RescheduledAndCanceledMessagesFireNotAtTheirOldTime(t *testing.T) {
	t.Parallel()
	second := devtest.Second(300 * time.Millisecond)
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	l.consume(t, broker, 2, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	moved := l.enqueue(t, outbox.Message{Key: "moved", Delay: 5 * second})
	gone := l.enqueue(t, outbox.Message{Key: "gone", Delay: 5 * second})
	eventually(t, "both are with the broker", func() bool { return l.count(t, "state = 'published'") == 2 })
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	l.tx(t, func(tx *gorm.DB) error {
		require.NoError(t, l.Reschedule(t.Context(), tx, "test", "moved", now.Add(20*second)))
		return l.Cancel(t.Context(), tx, "test", "gone")
	})
	require.Eventually(t, func() bool { return l.record(t, moved.ID).State == outbox.Done }, 20*second+wait, 10*time.Millisecond)
	require.Equal(t, outbox.Canceled, l.record(t, gone.ID).State)
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message WHERE e.at >= m.due_at"))
	require.Len(t, broker.Published(), 3, "two at first, and the moved one again")
}

// Scenario 9: a consumer that fails five times: five growing pauses, never a hot loop.
func TestScenario09_AnEffectThatReturnsErrorsIsRetriedAfterGrowingPauses(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{Backoff: func(n int) time.Duration { return 50 * time.Millisecond << n }})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	var ran []time.Time
	l.consume(t, broker, 1, func(*sql.Tx, outbox.Delivery) error {
		ran = append(ran, time.Now())
		if len(ran) <= 5 {
			return errEffect
		}
		return nil
	})
	m := l.enqueue(t, outbox.Message{})
	eventually(t, "takes effect", func() bool { return l.record(t, m.ID).State == outbox.Done })
	broker.Close()
	require.Len(t, ran, 6)
	for i := 1; i < len(ran); i++ {
		require.GreaterOrEqual(t, ran[i].Sub(ran[i-1]), 50*time.Millisecond<<i, "pause %d", i)
	}
	require.Equal(t, 5, l.record(t, m.ID).Attempts)
}

// Scenario 12: 60 s, 5 s, 30 s published in that order arrive at 5, 30, 60.
func TestScenario12_ALongDelayBlocksNoShortOne(t *testing.T) {
	t.Parallel()
	second := devtest.Second(20 * time.Millisecond)
	l := newLedger(t, outbox.StoreConfig{})
	record := l.effects(t)
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	l.consume(t, broker, 1, func(tx *sql.Tx, d outbox.Delivery) error { return record(tx, d.ID) })
	var want []int64
	for _, delay := range []int{60, 5, 30} {
		want = append(want, l.enqueue(t, outbox.Message{Delay: time.Duration(delay) * second}).ID)
	}
	want = []int64{want[1], want[2], want[0]}
	require.Eventually(t, func() bool { return l.count(t, "state = 'done'") == 3 }, 60*second+wait, 10*time.Millisecond)
	var got []int64
	require.NoError(t, l.db.Raw("SELECT message FROM effects ORDER BY at").Scan(&got).Error)
	require.Equal(t, want, got)
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM effects e JOIN outbox_messages m ON m.id = e.message WHERE e.at < m.due_at"))
}

// Scenario 22: transaction A inserts first and commits last: its row is still published.
func TestScenario22_ARowThatCommitsAfterLaterOnesIsPublished(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	a := l.db.Begin()
	slow := outbox.Message{Topic: "test", Key: "slow"}
	require.NoError(t, l.Enqueue(t.Context(), a, &slow))
	for i := range 100 {
		l.enqueue(t, outbox.Message{Key: fmt.Sprint(i)})
	}
	eventually(t, "the others are published", func() bool { return len(broker.Published()) == 100 })
	require.NoError(t, a.Commit().Error)
	eventually(t, "and the slow one", func() bool { return len(broker.Published()) == 101 })
	require.Equal(t, slow.ID, broker.Published()[100].ID)
}

// Scenario 27: long delays, healthy broker, reconciler all the while: zero republishes.
func TestScenario27_NothingIsPublishedTwiceByAHealthySystem(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	l.consume(t, broker, 4, func(*sql.Tx, outbox.Delivery) error { return nil })
	rec, err := outbox.NewReconciler(l.Store, outbox.ReconcileConfig{})
	require.NoError(t, err)
	const messages = 3000
	for i := range messages / 100 {
		l.tx(t, func(tx *gorm.DB) error {
			for j := range 100 {
				m := outbox.Message{Topic: "test", Key: fmt.Sprint(i, "-", j), Delay: time.Duration(j) * 20 * time.Millisecond}
				if err := l.Enqueue(t.Context(), tx, &m); err != nil {
					return err
				}
			}
			return nil
		})
		_, err := rec.Run(t.Context(), outbox.Scope{})
		require.NoError(t, err)
	}
	eventually(t, "all take effect", func() bool { return l.count(t, "state = 'done'") == messages })
	require.Len(t, broker.Published(), messages)
	require.Zero(t, l.count(t, "repairs > 0 OR publishes > 1"))
}

// Scenario 28: whatever the DSN's loc, the session's time zone and the process's TZ are, the due time is the same instant.
func TestScenario28_NoTimeZoneSettingMovesADueTime(t *testing.T) {
	t.Parallel()
	first := newLedger(t, outbox.StoreConfig{})
	name := first.name(t)
	now, err := first.Now(t.Context())
	require.NoError(t, err)
	for _, loc := range []string{"UTC", "Local", "Asia%2FShanghai"} {
		for _, zone := range []string{"%2B00%3A00", "%2B08%3A00"} {
			for _, parse := range []string{"true", "false"} {
				dsn := withParams(t, name, "loc="+loc+"&time_zone=%27"+zone+"%27&parseTime="+parse)
				l := openLedger(t, dsn, outbox.StoreConfig{})
				at := time.Date(2030, 7, 1, 12, 0, 0, 1000, time.FixedZone("", 5*3600))
				fixed := l.enqueue(t, outbox.Message{DueAt: at})
				delayed := l.enqueue(t, outbox.Message{Delay: time.Hour})
				for _, reader := range []ledger{first, l} {
					require.Equal(t, at.UTC(), reader.record(t, fixed.ID).DueAt, dsn)
					require.WithinDuration(t, now.Add(time.Hour), reader.record(t, delayed.ID).DueAt, time.Minute, dsn)
				}
				require.Equal(t, 1, first.count(t, "id = ? AND due_at = '2030-07-01 07:00:00.000001'", fixed.ID), dsn)
			}
		}
	}
}

func (l ledger) name(t *testing.T) string {
	t.Helper()
	var name string
	require.NoError(t, l.db.Raw("SELECT DATABASE()").Scan(&name).Error)
	return name
}

// Scenario 21: 10,000 claimable rows with equal timestamps, two relays: each takes other rows at once; an insert is never
// blocked; no filesort.
func TestScenario21_TwoRelaysShareRowsOfOneInstant(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	const messages = 10_000
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, due_at, available_at, created_at)
		SELECT seq % 16, 'test', 'text/plain', 'p', '2026-01-01', '2026-01-01', '2026-01-01' FROM `+numbers(messages))
	for _, analyze := range []bool{false, true} {
		if analyze {
			l.exec(t, "ANALYZE TABLE outbox_messages")
		}
		l.requireNoFilesort(t)
	}
	broker := newBroker(t)
	var blocked atomic.Int64
	broker.Refuse = func(outbox.Publication) error { // while a batch is in flight, an insert must not wait
		if blocked.Add(1)%1000 == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if err := l.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				return l.Enqueue(ctx, tx, &outbox.Message{Topic: "later", Delay: time.Hour * 24})
			}); err != nil {
				t.Errorf("an insert was blocked: %v", err)
			}
		}
		return nil
	}
	l.start(t, broker, outbox.RelayConfig{Owner: "one", Poll: quick, Lease: time.Second})
	l.start(t, broker, outbox.RelayConfig{Owner: "two", Poll: quick, Lease: time.Second})
	eventually(t, "all are published and settled", func() bool { return l.count(t, "topic = 'test' AND state = 'published'") == messages })
	ids := map[int64]int{}
	for _, p := range broker.Published() {
		ids[p.ID]++
	}
	require.Len(t, ids, messages)
	eventually(t, "both hold a share", func() bool {
		return l.scalar(t, "SELECT COUNT(DISTINCT owner) FROM outbox_shards") == 2 &&
			l.scalar(t, "SELECT MIN(n) FROM (SELECT COUNT(*) AS n FROM outbox_shards WHERE owner IS NOT NULL GROUP BY owner) AS x") == 8
	})
}

// Scenario 21, repeated with 1 % and 99 % of a large table claimable, after ANALYZE: taking work reads what it returns and
// little more, in index order.
func TestScenario21_TakingWorkReadsNoMoreThanItTakes(t *testing.T) {
	t.Parallel()
	const rows = 100_000
	for _, percent := range []int{1, 99} {
		l := newLedger(t, outbox.StoreConfig{})
		l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, due_at, available_at, created_at)
			SELECT (seq + seq DIV 100) % 16, 'test', 'text/plain', 'p', at, at, '2026-01-01' FROM (
				SELECT seq, IF(seq % 100 < ?, '2026-01-01 00:00:01', '2099-01-01') AS at FROM `+numbers(rows)+`) AS x`, percent)
		l.exec(t, "ANALYZE TABLE outbox_messages")
		l.requireNoFilesort(t)
		query, args := outbox.TakeQuery()
		require.NoError(t, l.db.Connection(func(tx *gorm.DB) error {
			before := handlerReads(t, tx)
			var taken []map[string]any
			require.NoError(t, tx.Raw(query, args...).Scan(&taken).Error)
			require.Greater(t, len(taken), 900)
			require.LessOrEqual(t, handlerReads(t, tx)-before, 3*len(taken)+100, "rows read for %d taken, %d %% claimable", len(taken), percent)
			return nil
		}))
	}
}

// handlerReads is how many rows and index entries the session's statements have asked the engine for.
func handlerReads(t *testing.T, tx *gorm.DB) int {
	t.Helper()
	rows, err := tx.Raw("SHOW SESSION STATUS LIKE 'Handler_read%'").Rows()
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	total := 0
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		total += n
	}
	require.NoError(t, rows.Err())
	return total
}

// numbers is SQL for a table of seq = 0 to n-1.
func numbers(n int) string {
	digit := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5" +
		" UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	return fmt.Sprintf(`(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS seq
		FROM %[1]s AS a, %[1]s AS b, %[1]s AS c, %[1]s AS d, %[1]s AS e) AS numbers WHERE seq < %[2]d`, digit, n)
}

func (l ledger) requireNoFilesort(t *testing.T) {
	t.Helper()
	query, args := outbox.TakeQuery()
	l.requireIndexRanges(t, query, args)
}

func (l ledger) requireIndexRanges(t *testing.T, query string, args []any) {
	t.Helper()
	var plan []map[string]any
	require.NoError(t, l.db.Raw("EXPLAIN FORMAT=TRADITIONAL "+query, args...).Scan(&plan).Error)
	branches := 0
	for _, row := range plan {
		require.NotContains(t, fmt.Sprint(row["Extra"]), "filesort", row)
		if fmt.Sprint(row["table"]) == "outbox_messages" {
			branches++
			require.Equal(t, "due", fmt.Sprint(row["key"]), row)
			require.Equal(t, "range", fmt.Sprint(row["type"]), row)
		}
	}
	require.Equal(t, 16, branches)
}

func TestRelay_PublishesAgainWhatWasNotConfirmed(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	var calls atomic.Int64
	broker.Refuse = func(outbox.Publication) error {
		switch calls.Add(1) {
		case 1:
			return outbox.ErrUnconfirmed
		case 2:
			return outbox.ErrNacked
		}
		return nil
	}
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	m := l.enqueue(t, outbox.Message{Delay: time.Hour})
	l.exec(t, "UPDATE outbox_messages SET available_at = '2020-01-01'")
	eventually(t, "is published", func() bool { return l.record(t, m.ID).State == outbox.Published })
	r := l.record(t, m.ID)
	require.Zero(t, r.Attempts, "neither spends an attempt")
	require.Equal(t, 1, r.Publishes)
}

func TestRelay_AMessageThatCannotBePublishedEndsDeadAndBlocksNoOther(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{MaxAttempts: 3, Backoff: func(int) time.Duration { return 0 }})
	broker := newBroker(t)
	broker.Refuse = func(p outbox.Publication) error {
		if p.Topic == "bad" {
			return fmt.Errorf("%w: header too long", outbox.ErrUnpublishable)
		}
		return nil
	}
	bad := l.enqueue(t, outbox.Message{Topic: "bad"})
	broken := l.enqueue(t, outbox.Message{Headers: map[string]string{"a": "b"}})
	l.exec(t, "UPDATE outbox_messages SET headers = '{' WHERE id = ?", broken.ID)
	good := l.enqueue(t, outbox.Message{Delay: time.Minute})
	logged := make(lines, 100)
	stop := l.start(t, broker, outbox.RelayConfig{Poll: quick, Log: slog.New(slog.NewJSONHandler(logged, nil))})
	eventually(t, "good is published, the others are dead", func() bool {
		return l.record(t, good.ID).State == outbox.Published && l.record(t, bad.ID).State == outbox.Dead && l.record(t, broken.ID).State == outbox.Dead
	})
	require.Contains(t, l.record(t, bad.ID).LastError, "header too long")
	require.Contains(t, l.record(t, broken.ID).LastError, "decode headers")
	require.Equal(t, 3, l.record(t, bad.ID).Attempts)

	stop()
	close(logged)
	var dead []int64
	for line := range logged {
		var said struct {
			Level, Msg, Error string
			ID                int64
			Attempt           int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &said))
		if said.Msg == "message is dead and waits for an operator" {
			require.Equal(t, "ERROR", said.Level)
			require.Equal(t, 3, said.Attempt)
			require.Equal(t, l.record(t, said.ID).LastError, said.Error)
			dead = append(dead, said.ID)
		}
	}
	require.ElementsMatch(t, []int64{bad.ID, broken.ID}, dead)
}

// lines is a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRelay_DrainsWhatIsInFlightAndGivesItsShardsBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	reached, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	broker.Refuse = func(outbox.Publication) error {
		if first.CompareAndSwap(false, true) {
			close(reached)
			<-release
		}
		return nil
	}
	m := l.enqueue(t, outbox.Message{Delay: time.Hour})
	stop := l.start(t, broker, outbox.RelayConfig{Poll: quick, Horizon: 2 * time.Hour})
	<-reached
	ended := make(chan struct{})
	go func() {
		stop()
		close(ended)
	}()
	close(release)
	<-ended
	require.Equal(t, outbox.Published, l.record(t, m.ID).State)
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner IS NOT NULL"))
	require.Zero(t, l.scalar(t, "SELECT COUNT(*) FROM outbox_relays"))
}

func TestRelay_TakesOverFromOneThatSaysNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, "UPDATE outbox_shards SET owner = 'gone', expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 SECOND")
	m := l.enqueue(t, outbox.Message{})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick, Lease: time.Second})
	eventually(t, "is published", func() bool { return len(broker.Published()) == 1 })
	require.Equal(t, m.ID, broker.Published()[0].ID)
	eventually(t, "takes all shards", func() bool { return l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner = 'relay'") == 16 })
}

// What was written before the database's clock was set back must neither keep a shard for ever nor count as a relay.
func TestRelay_TakesOverFromGhosts(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, "UPDATE outbox_shards SET owner = 'ghost', expires_at = UTC_TIMESTAMP(6) + INTERVAL 3 MINUTE WHERE shard < 8")
	l.exec(t, "INSERT INTO outbox_relays (owner, seen_at) VALUES ('ghost', UTC_TIMESTAMP(6) + INTERVAL 3 MINUTE)")
	l.start(t, newBroker(t), outbox.RelayConfig{Poll: quick, Lease: time.Second})
	eventually(t, "takes all shards", func() bool { return l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner = 'relay'") == 16 })
}

func TestRelay_CountsLeasesThatItLost(t *testing.T) {
	t.Parallel()
	var lost atomic.Int64
	l := newLedger(t, outbox.StoreConfig{Observer: outbox.Observer{LeaseLost: func(n int) { lost.Add(int64(n)) }}})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick, Lease: time.Second})
	eventually(t, "holds all", func() bool { return l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner = 'relay'") == 16 })
	eventually(t, "notices", func() bool {
		l.exec(t, "UPDATE outbox_shards SET owner = 'thief', expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 SECOND WHERE shard < 4 AND owner = 'relay'")
		return lost.Load() >= 4
	})
	eventually(t, "takes them again", func() bool { return l.scalar(t, "SELECT COUNT(*) FROM outbox_shards WHERE owner = 'relay'") == 16 })
}

func TestRelay_LockedRowsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"ahead": time.Hour, "due": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, outbox.StoreConfig{})
			broker := newBroker(t)
			const messages, locked = 250, 200
			l.tx(t, func(tx *gorm.DB) error {
				for i := range messages {
					if err := l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Key: fmt.Sprint(i), Delay: delay}); err != nil {
						return err
					}
				}
				return nil
			})
			open := l.db.Begin() // somebody cancels many, and takes a long time over it
			for i := range locked {
				require.NoError(t, l.Cancel(t.Context(), open, "test", fmt.Sprint(i)))
			}
			l.start(t, broker, outbox.RelayConfig{Poll: quick, Horizon: 2 * time.Hour, MaxInFlight: 64})
			eventually(t, "the others are settled", func() bool { return l.count(t, "state = 'published'") == messages-locked })
			require.NoError(t, open.Rollback().Error)
			eventually(t, "and then the locked ones", func() bool { return l.count(t, "state = 'published'") == messages })
			require.Len(t, broker.Published(), messages, "none was published twice")
		})
	}
}

func TestNewRelay_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	for name, cfg := range map[string]outbox.RelayConfig{
		"Owner":       {Owner: "a b"},
		"Poll":        {Owner: "a", Poll: time.Microsecond},
		"Lease":       {Owner: "a", Lease: time.Millisecond},
		"MaxInFlight": {Owner: "a", MaxInFlight: 1},
		"Horizon":     {Owner: "a", Horizon: -1},
	} {
		_, err := outbox.NewRelay(l.Store, broker, cfg)
		require.ErrorContains(t, err, name)
	}
	_, err := outbox.NewRelay(nil, broker, outbox.RelayConfig{Owner: "a"})
	require.Error(t, err)
	_, err = outbox.NewStore(nil, outbox.StoreConfig{})
	require.Error(t, err)
	for _, cfg := range []outbox.StoreConfig{{MaxPayload: -1}, {MaxPayload: 1 << 30}, {Retention: -1}, {MaxAttempts: -1}} {
		_, err = outbox.NewStore(l.db, cfg)
		require.Error(t, err)
	}
}

func withParams(t *testing.T, name, params string) string {
	t.Helper()
	base := devDSN(t)
	at := strings.LastIndex(base, "/")
	require.Positive(t, at)
	_, old, _ := strings.Cut(base[at+1:], "?")
	kept := slices.DeleteFunc(strings.Split(old, "&"), func(p string) bool {
		return strings.HasPrefix(p, "loc=") || strings.HasPrefix(p, "parseTime=") || strings.HasPrefix(p, "time_zone=")
	})
	return base[:at+1] + name + "?" + strings.Join(append(kept, params), "&")
}

func TestRelay_TakesNoMoreBytesThanItMayHold(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	const messages, size = 300, 10_000
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, due_at, available_at, created_at)
		SELECT seq % 16, 'test', 'a/b', REPEAT('x', ?), UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, UTC_TIMESTAMP(6) FROM `+numbers(messages), size)
	broker := newBroker(t)
	var largest atomic.Int64
	inFlight := atomic.Int64{}
	counting := publisherFunc(func(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
		n := int64(0)
		for _, p := range batch {
			n += int64(len(p.Payload))
		}
		largest.Store(max(largest.Load(), inFlight.Add(n)))
		defer inFlight.Add(-n)
		return broker.Publish(ctx, batch)
	})
	l.start(t, counting, outbox.RelayConfig{Poll: quick, MaxInFlightBytes: 5 * size})
	eventually(t, "all are settled", func() bool { return l.count(t, "state = 'published'") == messages })
	require.LessOrEqual(t, largest.Load(), int64(6*size))
	require.Len(t, broker.Published(), messages)
}

type publisherFunc func(ctx context.Context, batch []outbox.Publication) []outbox.Receipt

func (f publisherFunc) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	return f(ctx, batch)
}

func TestRelay_HeldRowsDoNotStopTheirOwnRelease(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	broker := newBroker(t)
	const messages = 100 // more than may be in flight
	for range messages {
		l.enqueue(t, outbox.Message{Delay: 1500 * time.Millisecond})
	}
	l.exec(t, "UPDATE outbox_messages SET held = TRUE")
	l.start(t, broker, outbox.RelayConfig{Poll: quick, MaxInFlight: 16})
	eventually(t, "all are published", func() bool { return len(broker.Published()) == messages })
	for _, p := range broker.Published() {
		now, err := l.Now(t.Context())
		require.NoError(t, err)
		require.False(t, now.Before(p.DueAt))
	}
}
