package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

func TestBenchMemory_MeasuresBothOnTheRealServices(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	s := services{dsn: devtest.Database(t), amqp: broker.URL(), exchange: broker.Exchange(), broker: broker}
	lines, err := benchMemory(t.Context(), s, small())
	require.NoError(t, err)
	require.Len(t, lines, 2)
	for _, l := range lines {
		require.Equal(t, "memory", l.Bench)
		require.Equal(t, 2, l.Rounds)
		require.Nil(t, l.Ratio)
		require.Greater(t, l.Min, 1.0, "no Go process is that small")
	}
}

func TestBenchBroker_ComparesWithoutTheRowsThatWaitAndWithTheQuotedFigure(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	s := services{dsn: devtest.Database(t), amqp: broker.URL(), exchange: broker.Exchange(), broker: broker}
	lines, err := benchBroker(t.Context(), s, small())
	require.NoError(t, err)
	require.Len(t, lines, 2)
	for _, l := range lines {
		require.Equal(t, 200, l.Held)
		require.Equal(t, 2000, l.Waiting)
		require.Greater(t, l.Min, 1.0, "no broker is that small")
	}
	require.InDelta(t, 2200*1400.0/(1<<20), *lines[1].Ceiling, 0.01)
}

func TestBenchIdle_MeasuresEachStrategyOnTheRealServices(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	s := services{dsn: devtest.Database(t), amqp: broker.URL(), exchange: broker.Exchange(), broker: broker}
	o := small()
	o.idle = 3
	lines, err := benchIdle(t.Context(), s, o)
	require.NoError(t, err)
	require.Len(t, lines, 3)
	for _, l := range lines {
		require.Equal(t, "idle", l.Bench)
		require.Equal(t, 300, l.Waiting)
		require.Greater(t, l.Min, 3.0, "a worker looks for work five times a second")
		require.Positive(t, l.PublishP50Ms)
		require.GreaterOrEqual(t, l.PublishP99Ms, l.PublishP50Ms)
	}
}

func TestProcessorTime_GrowsWithWork(t *testing.T) {
	t.Parallel()
	before, err := processorTime(os.Getpid())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for began := time.Now(); time.Since(began) < 30*time.Millisecond; {
		}
		now, err := processorTime(os.Getpid())
		return err == nil && now > before
	}, 10*time.Second, time.Millisecond)
	_, err = processorTime(0)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What is copied has keys, times and shards of its own, as if it had been written row by row.
func TestFillMany_WritesWhatFillWrites(t *testing.T) {
	t.Parallel()
	const n = 2*copied + 100
	led, err := openLedger(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, led.close()) }()
	require.NoError(t, led.fill(t.Context(), 5, time.Hour, time.Second))
	require.NoError(t, led.fillMany(t.Context(), n, time.Second))
	require.NoError(t, led.fill(t.Context(), 5, time.Hour, time.Second))
	for where, want := range map[string]int{
		"TRUE": n + 10,
		"live_key = message_key AND available_at = due_at AND LENGTH(payload) = 200": n + 10,
		"due_at > UTC_TIMESTAMP(6) + INTERVAL 2 HOUR":                                n,
	} {
		got, err := led.count(t.Context(), where)
		require.NoError(t, err)
		require.Equal(t, want, got, where)
	}
	var keys, shards, seconds int
	require.NoError(t, led.sql.QueryRowContext(t.Context(), `SELECT COUNT(DISTINCT message_key), COUNT(DISTINCT shard),
		TIMESTAMPDIFF(SECOND, MIN(due_at), MAX(due_at)) FROM outbox_messages WHERE due_at > UTC_TIMESTAMP(6) + INTERVAL 2 HOUR`).Scan(&keys, &shards, &seconds))
	require.Equal(t, n, keys)
	require.Equal(t, 16, shards)
	require.InDelta(t, n-1, seconds, 60, "one step after the other")
}

func TestBenchFlat_MeasuresEachOperationAtEachSize(t *testing.T) {
	t.Parallel()
	lines, err := benchFlat(t.Context(), services{dsn: devtest.Database(t)}, small())
	require.NoError(t, err)
	require.Len(t, lines, 3*len(operations()))
	for i, l := range lines {
		require.Equal(t, operations()[i%5], l.Operation)
		require.Equal(t, []int{200, 2000, 2000}[i/5], l.Waiting)
		require.Equal(t, []int{0, 0, 2000}[i/5], l.Finished)
		require.Equal(t, 2, l.Rounds)
		require.Positive(t, *l.Ratio)
	}
}

func TestBenchOverview_MeasuresOnARealDatabase(t *testing.T) {
	t.Parallel()
	l, err := benchOverview(t.Context(), services{dsn: devtest.Database(t)}, small())
	require.NoError(t, err)
	require.Equal(t, "overview", l.Bench)
	require.Equal(t, 2000, l.Rows)
	require.Equal(t, 2, l.Rounds)
	require.Positive(t, l.P50Ms)
	require.GreaterOrEqual(t, l.P99Ms, l.P50Ms)
	require.Equal(t, l.P99Ms <= 100, l.Met)
}
