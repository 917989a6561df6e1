package outbox_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

func (l ledger) overview(t *testing.T) outbox.Overview {
	t.Helper()
	v, err := l.operator().Overview(t.Context())
	require.NoError(t, err)
	return v
}

// What the overview says is what the rows say.
func TestOverview_SaysWhatTheRowsSay(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.fillMixed(t, 4000)
	require.NoError(t, l.Keep(t.Context(), outbox.Stray{Reason: "malformed"}))
	v := l.overview(t)
	for _, s := range []outbox.State{outbox.Scheduled, outbox.Published, outbox.Done, outbox.Canceled, outbox.Dead} {
		require.Equal(t, outbox.Count{N: l.count(t, "state = ?", s)}, v.Counts[string(s)], s)
	}
	require.Equal(t, outbox.Count{N: 1}, v.Counts["unrouted"])

	now := v.Now.Format("2006-01-02 15:04:05.000000")
	require.Len(t, v.DueNextHour, 60)
	for i, m := range v.DueNextHour {
		require.Equal(t, v.Now.Add(time.Duration(i)*time.Minute), m.From)
		want := l.count(t, `state IN ('scheduled', 'published') AND due_at >= ? + INTERVAL ? MINUTE AND due_at < ? + INTERVAL ? MINUTE`, now, i, now, i+1)
		require.Equal(t, outbox.Count{N: want}, m.Count, i)
	}

	late := l.count(t, `due_at < ? - INTERVAL 5 SECOND AND state IN ('scheduled', 'published')`, now)
	require.Positive(t, late)
	require.Equal(t, outbox.Count{N: late}, v.Verdict.Late)
	require.False(t, v.Verdict.OK)
	var oldest int64
	require.NoError(t, l.db.Raw(`SELECT TIMESTAMPDIFF(MICROSECOND, MIN(due_at), ?) FROM outbox_messages WHERE state IN ('scheduled', 'published')`, now).Scan(&oldest).Error)
	require.Equal(t, time.Duration(oldest)*time.Microsecond, v.Verdict.Oldest)
	require.Contains(t, v.Verdict.Text, fmt.Sprintf("%d late, oldest 5 h, %d dead: no worker runs", late, v.Counts["dead"].N))
	require.Nil(t, v.LastPass)
	_, err := l.reconciler(t, outbox.ReconcileConfig{}).Run(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	v = l.overview(t)
	require.NotNil(t, v.LastAudit)
	require.Equal(t, v.LastAudit.ID, v.LastPass.ID, "an audit is a pass as well")
}

func TestOverview_TellsHowLateWhatHasTakenEffectWas(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, state, untracked, content_type, payload, due_at, finished_at, available_at, created_at)
		SELECT seq % 16, 'test', 'done', seq % 10 = 0, 'text/plain', 'p', finished - INTERVAL seq * 1000 MICROSECOND, finished, finished + INTERVAL 7 DAY, finished - INTERVAL 1 HOUR
		FROM (SELECT seq, UTC_TIMESTAMP(6) - INTERVAL seq * 5 SECOND AS finished FROM `+numbers(800)+`) AS x`)
	v := l.overview(t).Lateness
	var want struct {
		Counted int
		MaxUs   int64
	}
	require.NoError(t, l.db.Raw(`SELECT COUNT(*) AS counted, MAX(TIMESTAMPDIFF(MICROSECOND, due_at, finished_at)) AS max_us
		FROM outbox_messages WHERE NOT untracked AND finished_at >= ?`, v.Since.Format("2006-01-02 15:04:05.000000")).Scan(&want).Error)
	require.Equal(t, want.Counted, v.Of)
	require.Greater(t, v.Of, 500)
	require.Equal(t, time.Duration(want.MaxUs)*time.Microsecond, v.Max)
	sum := 0
	for _, b := range v.Buckets {
		sum += b.Count
	}
	require.Equal(t, v.Of, sum)
}

func TestOverview_IsWellWhenAllIsWell(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	require.Equal(t, "nothing is late, but no worker runs", l.overview(t).Verdict.Text)
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	effect := l.effects(t)
	l.consume(t, broker, 2, func(tx *sql.Tx, d outbox.Delivery) error { return effect(tx, d.ID) })
	l.tx(t, func(tx *gorm.DB) error {
		for i := range 50 {
			m := outbox.Message{Topic: "test", DueAt: time.Unix(1, 0)} // what is written after its due time is not late before that
			if i%2 == 1 {
				m = outbox.Message{Topic: "test", Delay: time.Hour}
			}
			if err := l.Enqueue(t.Context(), tx, &m); err != nil {
				return err
			}
		}
		return nil
	})
	eventually(t, "25 take effect", func() bool { return l.count(t, "state = 'done'") == 25 })
	v := l.overview(t)
	require.Less(t, v.Lateness.Max, wait)
	require.Equal(t, "all on time", v.Verdict.Text)
	require.True(t, v.Verdict.OK)
	require.Equal(t, 25, v.Lateness.Of)
	require.Len(t, v.Workers, 1)
}

// Effects that fail again and again are late, although their rows are scheduled ahead.
func TestOverview_SeesWhatWaitsForAnotherAttempt(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for range 3 {
		l.enqueue(t, outbox.Message{})
	}
	l.exec(t, "UPDATE outbox_messages SET due_at = due_at - INTERVAL 1 HOUR, created_at = created_at - INTERVAL 1 HOUR")
	l.exec(t, "UPDATE outbox_messages SET attempts = 4, last_error = 'connection to mail refused', available_at = UTC_TIMESTAMP(6) + INTERVAL 500 SECOND")
	l.enqueue(t, outbox.Message{Delay: time.Hour})
	l.exec(t, "INSERT INTO outbox_relays (owner, seen_at) VALUES ('one', UTC_TIMESTAMP(6))")
	v := l.overview(t).Verdict
	require.Equal(t, 3, v.Late.N)
	require.Equal(t, "3 late, oldest 60 min: 3 wait for another attempt (connection to mail refused)", v.Text)
	// The next attempt may be with the broker already, which is when a published row is looked at again a grace later.
	l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = available_at + INTERVAL 30 SECOND WHERE attempts > 0")
	v = l.overview(t).Verdict
	require.Equal(t, 3, v.Late.N)
	require.Equal(t, "3 late, oldest 60 min: 3 wait for another attempt (connection to mail refused)", v.Text)
}

// Counting stops, whatever there is, and so does reading.
func TestOverview_IsBounded(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, state, content_type, payload, due_at, available_at, created_at, finished_at)
		SELECT seq % 16, 'test', IF(seq % 2, 'scheduled', 'done'), 'text/plain', 'p', at, at, at, at
		FROM (SELECT seq, UTC_TIMESTAMP(6) + INTERVAL (CAST(seq AS SIGNED) - 30000) * 1000 MICROSECOND AS at FROM `+numbers(100_000)+`) AS x`)
	l.exec(t, "ANALYZE TABLE outbox_messages")
	pool, err := l.db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	before := handlerReads(t, l.db)
	v := l.overview(t)
	require.Less(t, handlerReads(t, l.db)-before, 80_000, "what is counted is read twice: into a temporary table, and there")
	require.Equal(t, outbox.Count{N: 10_000, More: true}, v.Counts["scheduled"])
	require.Equal(t, outbox.Count{N: 500, More: true}, v.DueNextHour[0].Count)
	require.Equal(t, outbox.Count{N: 1000, More: true}, v.Verdict.Late)
	require.InDelta(t, 30, v.Verdict.Oldest.Seconds(), 20)
	require.LessOrEqual(t, v.Lateness.Of, 1024)
}
