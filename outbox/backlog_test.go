package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestBacklog_CountsByTopicAndKnowsTheEarliest(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	b, err := l.Backlog(t.Context(), outbox.Scheduled)
	require.NoError(t, err)
	require.Equal(t, outbox.Backlog{Topics: map[string]int{}}, b)

	l.enqueue(t, outbox.Message{Topic: "a", Delay: time.Hour})
	b, err = l.Backlog(t.Context(), outbox.Scheduled)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1}, b.Topics)
	require.InDelta(t, -time.Hour.Seconds(), b.Overdue.Seconds(), 60)

	l.enqueue(t, outbox.Message{Topic: "b", Delay: -time.Minute})
	l.enqueue(t, outbox.Message{Topic: "a"})
	dead := l.enqueue(t, outbox.Message{Topic: "a"})
	l.exec(t, "UPDATE outbox_messages SET state = 'dead', available_at = NULL WHERE id = ?", dead.ID)
	b, err = l.Backlog(t.Context(), outbox.Scheduled)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 2, "b": 1}, b.Topics)
	require.False(t, b.More)
	require.Less(t, b.Overdue, wait, "a message that was written late waits from when it was written")

	l.exec(t, "UPDATE outbox_messages SET due_at = due_at - INTERVAL 1 DAY, created_at = due_at, available_at = UTC_TIMESTAMP(6) + INTERVAL 60 SECOND WHERE topic = 'b'")
	b, err = l.Backlog(t.Context(), outbox.Scheduled)
	require.NoError(t, err)
	require.InDelta(t, (24 * time.Hour).Seconds(), b.Overdue.Seconds(), 120, "another attempt makes it no younger")

	b, err = l.Backlog(t.Context(), outbox.Dead)
	require.NoError(t, err)
	require.Equal(t, outbox.Backlog{Topics: map[string]int{"a": 1}}, b)
}

// Beyond a thousand of a shard it says that there may be more, and reads no further.
func TestBacklog_StopsCounting(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, state, content_type, payload, created_at, due_at, available_at)
		SELECT 3, 'many', 'published', 'a/b', '', UTC_TIMESTAMP(6) - INTERVAL n.n SECOND, UTC_TIMESTAMP(6) - INTERVAL n.n SECOND,
			UTC_TIMESTAMP(6) - INTERVAL n.n SECOND
		FROM (WITH RECURSIVE n AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM n WHERE n < 990) SELECT n FROM n) AS n`)
	b, err := l.Backlog(t.Context(), outbox.Published)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"many": 990}, b.Topics)
	require.False(t, b.More)
	require.InDelta(t, 990, b.Overdue.Seconds(), wait.Seconds())
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, state, content_type, payload, created_at, due_at, available_at)
		SELECT shard, topic, state, content_type, payload, created_at, due_at, UTC_TIMESTAMP(6) FROM outbox_messages LIMIT 20`)
	b, err = l.Backlog(t.Context(), outbox.Published)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"many": 1000}, b.Topics)
	require.True(t, b.More)
	require.InDelta(t, 990, b.Overdue.Seconds(), wait.Seconds(), "those that come first are counted")
}

func TestClockOffset_IsThatOfTheDatabase(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	_, ok := l.ClockOffset()
	require.False(t, ok, "it was not asked yet")
	_, err := l.Now(t.Context())
	require.NoError(t, err)
	offset, ok := l.ClockOffset()
	require.True(t, ok)
	require.InDelta(t, 0, offset.Seconds(), 10, "both run on this machine")
}
