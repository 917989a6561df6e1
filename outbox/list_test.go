package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

// fillMixed writes rows of every state, topic and time.
func (l ledger) fillMixed(t *testing.T, n int) {
	t.Helper()
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, message_key, live_key, state, content_type, payload, due_at, available_at, created_at, finished_at,
			attempts, last_error)
		SELECT seq % 16, CONCAT('topic-', seq % 3), IF(seq % 10 = 0, NULL, CONCAT('key-', seq)),
			IF(seq % 10 = 0 OR seq % 5 > 2, NULL, CONCAT('key-', seq)),
			ELT(seq % 5 + 1, 'scheduled', 'published', 'dead', 'done', 'canceled'), 'text/plain', 'p', due,
			IF(seq % 5 = 2, NULL, due + INTERVAL ELT(seq % 5 + 1, 0, 30, 0, 604800, 604800) SECOND), '2026-01-01',
			IF(seq % 5 > 2, due, NULL), seq % 7, IF(seq % 7 = 0, NULL, CONCAT('Error number ', seq % 7))
		FROM (SELECT seq, UTC_TIMESTAMP(6) + INTERVAL (CAST(seq AS SIGNED) - ?) * 10 SECOND AS due FROM `+numbers(n)+`) AS x`, n/2)
}

// listAll pages through a list to its end.
func listAll(t *testing.T, o *outbox.Operator, f outbox.Filter, limit int, between func()) (ids []int64) {
	t.Helper()
	for next := ""; ; {
		page, err := o.List(t.Context(), f, next, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Messages), limit)
		for _, r := range page.Messages {
			ids = append(ids, r.ID)
		}
		if next = page.Next; next == "" {
			return ids
		}
		between()
	}
}

// Every filter finds the rows that a WHERE finds, each once, whatever is written meanwhile.
func TestList_PagesThroughAllThatTheFilterPicksWhileOthersAreWritten(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	const rows = 3000
	l.fillMixed(t, rows)
	for _, key := range []string{"ended", "ended", "other"} {
		l.act(t, l.enqueue(t, outbox.Message{Topic: "topic-1", Key: key}).ID, outbox.ActCancel)
	}
	last := l.enqueue(t, outbox.Message{Topic: "topic-1", Key: "ended"}).ID
	o := l.operator()
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	type pick struct {
		f     outbox.Filter
		where string
		args  []any
	}
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000") }
	from, to := now.Add(-time.Hour), now.Add(2*time.Hour)
	picks := []pick{
		{outbox.Filter{}, "TRUE", nil},
		{outbox.Filter{Topic: "topic-1"}, "topic = 'topic-1'", nil},
		{outbox.Filter{Topic: "topic-9"}, "FALSE", nil},
		{outbox.Filter{Key: "key-123"}, "message_key = 'key-123'", nil},
		{outbox.Filter{Key: "ended", Topic: "topic-1"}, "message_key = 'ended'", nil},
		{outbox.Filter{Key: "ended", Topic: "topic-2"}, "FALSE", nil},
		{outbox.Filter{Key: "KEY-124"}, "FALSE", nil},
		{outbox.Filter{KeyPrefix: "key-2"}, "message_key LIKE 'key-2%'", nil},
		{outbox.Filter{KeyPrefix: "key-2", State: outbox.Done}, "message_key LIKE 'key-2%' AND state = 'done'", nil},
		{outbox.Filter{KeyPrefix: "key-2", State: outbox.Dead, Topic: "topic-0"}, "message_key LIKE 'key-2%' AND state = 'dead' AND topic = 'topic-0'", nil},
		{outbox.Filter{DueFrom: from, DueBefore: to}, "due_at >= ? AND due_at < ?", []any{at(from), at(to)}},
		{outbox.Filter{DueFrom: from, State: outbox.Scheduled}, "due_at >= ? AND state = 'scheduled'", []any{at(from)}},
		{outbox.Filter{DueBefore: to, State: outbox.Published}, "due_at < ? AND state = 'published'", []any{at(to)}},
		{outbox.Filter{Error: "nUMBER 3"}, "last_error LIKE '%number 3%'", nil},
		{outbox.Filter{Error: "%"}, "FALSE", nil},
		{outbox.Filter{Error: "number 3", State: outbox.Dead, Topic: "topic-2"}, "last_error LIKE '%number 3%' AND state = 'dead' AND topic = 'topic-2'", nil},
	}
	for _, s := range []outbox.State{outbox.Scheduled, outbox.Published, outbox.Done, outbox.Canceled, outbox.Dead} {
		picks = append(picks, pick{outbox.Filter{State: s}, "state = ?", []any{string(s)}},
			pick{outbox.Filter{State: s, Topic: "topic-0"}, "state = ? AND topic = 'topic-0'", []any{string(s)}})
	}
	for _, p := range picks {
		var want []int64
		require.NoError(t, l.db.Raw("SELECT id FROM outbox_messages WHERE ("+strings.ReplaceAll(p.where, "last_error", "LOWER(last_error)")+
			") AND id <= ? ORDER BY id", append(p.args, last)...).Scan(&want).Error)
		limit := 1 + rand.IntN(120)
		if len(want) > 1000 {
			limit += 100
		}
		inserts := 0
		got := listAll(t, o, p.f, limit, func() {
			if inserts++; inserts > 5 {
				return
			}
			l.enqueue(t, outbox.Message{Topic: "topic-1", Key: fmt.Sprintf("key-2-%d", rand.Int()), Delay: time.Duration(rand.IntN(7200)) * time.Second})
		})
		old := slices.DeleteFunc(slices.Clone(got), func(id int64) bool { return id > last })
		require.ElementsMatch(t, want, old, "%+v, %d at a time", p.f, limit)
		slices.Sort(got)
		require.Len(t, slices.Compact(slices.Clone(got)), len(got), "%+v: none twice", p.f)
		l.exec(t, "DELETE FROM outbox_messages WHERE id > ?", last)
	}
}

func TestList_HasAnOrder(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.fillMixed(t, 500)
	o := l.operator()
	read := func(f outbox.Filter) []outbox.Record {
		t.Helper()
		page, err := o.List(t.Context(), f, "", 60)
		require.NoError(t, err)
		require.Len(t, page.Messages, 60)
		require.NotEmpty(t, page.Next)
		return page.Messages
	}
	for s, order := range map[outbox.State]func(a, b outbox.Record) int{
		outbox.Scheduled: func(a, b outbox.Record) int { return a.AvailableAt.Compare(b.AvailableAt) },
		outbox.Published: func(a, b outbox.Record) int { return a.AvailableAt.Compare(b.AvailableAt) },
		outbox.Done:      func(a, b outbox.Record) int { return b.FinishedAt.Compare(a.FinishedAt) },
		outbox.Canceled:  func(a, b outbox.Record) int { return b.FinishedAt.Compare(a.FinishedAt) },
		outbox.Dead:      func(a, b outbox.Record) int { return int(b.ID - a.ID) },
	} {
		require.True(t, slices.IsSortedFunc(read(outbox.Filter{State: s}), order), s)
	}
	require.True(t, slices.IsSortedFunc(read(outbox.Filter{}), func(a, b outbox.Record) int { return int(b.ID - a.ID) }))
	require.True(t, slices.IsSortedFunc(read(outbox.Filter{Topic: "topic-1"}), func(a, b outbox.Record) int { return strings.Compare(a.Key, b.Key) }))
	require.Equal(t, outbox.Dead, read(outbox.Filter{Error: "number"})[0].State, "what waits for an operator comes first")
}

func TestList_RefusesWhatBreaksARule(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	o := l.operator()
	for name, f := range map[string]outbox.Filter{
		"topic": {Topic: "a b"}, "key": {Key: "a\n"}, "key_prefix": {Key: "a", KeyPrefix: "a"}, "state": {State: "gone"}, "error": {Error: longText(300)},
		"due_from": {DueFrom: time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)}, "due_to": {DueBefore: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := o.List(t.Context(), f, "", 10)
		var field *outbox.FieldError
		require.ErrorAs(t, err, &field, name)
		require.Equal(t, name, field.Field)
	}
	for _, limit := range []int{-1, 0, outbox.MaxPage + 1} {
		_, err := o.List(t.Context(), outbox.Filter{}, "", limit)
		require.ErrorIs(t, err, outbox.ErrInvalidMessage)
	}
	for _, after := range []string{"x", "eyJ3Ijo5fQ", "eyJ3IjotMX0", "!"} {
		_, err := o.List(t.Context(), outbox.Filter{}, after, 10)
		require.ErrorIs(t, err, outbox.ErrInvalidMessage, after)
	}
}

// Whatever a filter leaves out, a call looks at a few thousand rows and goes on in the next.
func TestList_IsBoundedWhateverThereIs(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.fillMixed(t, 60_000)
	l.exec(t, "ANALYZE TABLE outbox_messages")
	pool, err := l.db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1) // so that all is counted by one session
	o := l.operator()
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	for _, f := range []outbox.Filter{
		{},
		{Topic: "topic-1"},
		{Topic: "absent"},
		{Key: "absent"},
		{KeyPrefix: "key-5"},
		{Error: "absent"},
		{State: outbox.Done, Topic: "absent"},
		{State: outbox.Dead, Error: "absent"},
		{State: outbox.Scheduled, KeyPrefix: "absent"},
		{DueFrom: now, DueBefore: now.Add(time.Minute)},
		{DueFrom: now.Add(1000 * time.Hour)},
		{State: outbox.Canceled},
		{Key: "absent", Topic: "topic-1"},
	} {
		pages, before := 0, handlerReads(t, l.db)
		for next := ""; pages < 4; {
			page, err := o.List(t.Context(), f, next, 50)
			require.NoError(t, err)
			pages++
			if next = page.Next; next == "" {
				break
			}
		}
		require.LessOrEqual(t, handlerReads(t, l.db)-before, pages*12_000, "%+v: rows and index entries read by %d pages", f, pages)
	}
}

func TestList_ReadsAStateInIndexOrderAndNothingButTheIndex(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.fillMixed(t, 5000)
	l.exec(t, "ANALYZE TABLE outbox_messages")
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	for _, s := range []outbox.State{outbox.Scheduled, outbox.Published, outbox.Done, outbox.Canceled, outbox.Dead} {
		for _, f := range []outbox.Filter{{}, {DueFrom: now.Add(-time.Hour), DueBefore: now.Add(time.Hour)}} {
			query, args := outbox.ListQuery(l.operator(), s, f)
			var plan []map[string]any
			require.NoError(t, l.db.Raw("EXPLAIN FORMAT=TRADITIONAL "+query, args...).Scan(&plan).Error)
			branches := 0
			for _, row := range plan {
				require.NotContains(t, fmt.Sprint(row["Extra"]), "filesort", "%s: %v", s, row)
				if fmt.Sprint(row["table"]) == "outbox_messages" {
					branches++
					require.Equal(t, "due", fmt.Sprint(row["key"]), "%s: %v", s, row)
					require.Contains(t, fmt.Sprint(row["Extra"]), "Using index", "%s: %v", s, row)
				}
			}
			require.Equal(t, 16, branches)
		}
	}
}
