package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestRates_AreWhatTheTotalsOfWorkersGrowBy(t *testing.T) {
	t.Parallel()
	var r rates
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	reading := func(after time.Duration, totals map[string]int64) []rateJSON {
		v := outbox.Overview{Now: start.Add(after)}
		for owner, n := range totals {
			// Each was last heard of a second ago.
			v.Workers = append(v.Workers, outbox.Peer{Owner: owner, SeenAt: v.Now.Add(-time.Second), Heartbeat: outbox.Heartbeat{Published: 2 * n, Finished: n}})
		}
		return r.add(v)
	}
	require.Empty(t, reading(0, map[string]int64{"a": 1000}), "one total is no rate")
	require.Empty(t, reading(5*time.Second, map[string]int64{"a": 1100}), "too soon")
	got := reading(10*time.Second, map[string]int64{"a": 1200, "b": 7000})
	require.Len(t, got, 1)
	require.InDelta(t, 40, got[0].PublishedPerS, 0)
	require.InDelta(t, 20, got[0].FinishedPerS, 0, "b was not known before")
	got = reading(20*time.Second, map[string]int64{"a": 10, "b": 7010})
	require.InDelta(t, 1, got[1].FinishedPerS, 0, "a has started again")
	for i := range 100 {
		got = reading(time.Duration(30+10*i)*time.Second, map[string]int64{"a": 100})
	}
	require.Len(t, got, 60, "ten minutes")
	require.Empty(t, reading(1100*time.Second, map[string]int64{"a": 900}), "nobody has looked for a minute")
	require.Len(t, reading(1110*time.Second, map[string]int64{"a": 910}), 1)
	require.Empty(t, reading(0, map[string]int64{"a": 100})[1:], "the clock was set back")
}
