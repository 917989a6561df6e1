package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrouble_SaysWhatIsWrongWithWorkers(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 30, 12, 4, 5, 0, time.UTC)
	alive := func(h Heartbeat) Peer { return Peer{SeenAt: noon.Add(time.Minute), Heartbeat: h} }
	well := Heartbeat{Connected: true, Since: noon, Queues: []WorkQueue{{Topic: "order.expire", Consumers: 1}}}
	away := Heartbeat{Since: noon, Reason: "connection refused"}
	earlier := Heartbeat{Since: noon.Add(-time.Hour), Reason: "no route"}
	for name, test := range map[string]struct {
		workers []Peer
		says    string
	}{
		"none":            {nil, "no worker runs"},
		"silent":          {[]Peer{{SeenAt: noon, Silent: time.Minute, Heartbeat: well}, {SeenAt: noon.Add(-time.Hour), Silent: time.Hour}}, "no worker runs (one that has not ended was last seen at 12:04 UTC)"},
		"well":            {[]Peer{alive(well), {Silent: time.Hour}}, ""},
		"says nothing":    {[]Peer{alive(Heartbeat{})}, ""},
		"away":            {[]Peer{alive(away)}, "broker unreachable since 12:04 UTC (connection refused)"},
		"has just begun":  {[]Peer{{SeenAt: noon.Add(time.Second), Heartbeat: away}}, ""},
		"all away":        {[]Peer{alive(earlier), alive(away)}, "broker unreachable since 12:04 UTC (connection refused)"},
		"one away":        {[]Peer{alive(well), alive(earlier)}, "1 of 2 workers have no broker since 11:04 UTC (no route)"},
		"blocked":         {[]Peer{alive(Heartbeat{Connected: true, Blocked: true, Since: noon, Reason: "low on memory"})}, "the broker takes no messages since 12:04 UTC (low on memory)"},
		"never connected": {[]Peer{alive(Heartbeat{Reason: "no such host"})}, "broker unreachable since an unknown time (no such host)"},
		"no consumer": {
			[]Peer{alive(Heartbeat{Connected: true, Since: noon, Queues: []WorkQueue{{Topic: "b"}, {Topic: "a"}, {Topic: "c", Consumers: 1}}})},
			"nobody consumes a, b",
		},
	} {
		require.Equal(t, test.says, trouble(test.workers), name)
	}
}

func TestVerdict_IsASentence(t *testing.T) {
	t.Parallel()
	for says, v := range map[string]struct {
		verdict Verdict
		dead    Count
	}{
		"all on time":                                                        {},
		"3 dead, all others on time":                                         {dead: Count{N: 3}},
		"nothing is late, but no worker runs":                                {verdict: Verdict{Why: "no worker runs"}},
		"nothing is late, 10000+ dead, but no worker runs":                   {verdict: Verdict{Why: "no worker runs"}, dead: Count{10_000, true}},
		"7 late, oldest 3 min: broker unreachable since 12:04 UTC (refused)": {verdict: Verdict{Late: Count{N: 7}, Oldest: 3*time.Minute + 50*time.Second, Why: "broker unreachable since 12:04 UTC (refused)"}},
		"1 late, oldest 6 s, 2 dead: x":                                      {verdict: Verdict{Late: Count{N: 1}, Oldest: 6*time.Second + 900*time.Millisecond, Why: "x"}, dead: Count{N: 2}},
		"1 late, oldest 47 h: x":                                             {verdict: Verdict{Late: Count{N: 1}, Oldest: 47 * time.Hour, Why: "x"}},
		"1 late, oldest 3 d: x":                                              {verdict: Verdict{Late: Count{N: 1}, Oldest: 80 * time.Hour, Why: "x"}},
	} {
		require.Equal(t, says, v.verdict.text(v.dead))
	}
}

func TestLateness_Figures(t *testing.T) {
	t.Parallel()
	var l Lateness
	l.fill(nil)
	require.Zero(t, l.Of+int(l.Max))
	for _, b := range l.Buckets {
		require.Zero(t, b.Count)
	}
	late := []time.Duration{-time.Millisecond, 10 * time.Millisecond, 11 * time.Millisecond, 2 * time.Hour}
	l.fill(late)
	counted := map[time.Duration]int{}
	for _, b := range l.Buckets {
		if b.Count > 0 {
			counted[b.UpTo] = b.Count
		}
	}
	require.Equal(t, map[time.Duration]int{5 * time.Millisecond: 1, 10 * time.Millisecond: 1, 25 * time.Millisecond: 1, 0: 1}, counted)
	require.Equal(t, []time.Duration{10 * time.Millisecond, 2 * time.Hour, 2 * time.Hour}, []time.Duration{l.P50, l.P99, l.Max})
}
