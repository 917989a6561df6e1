package demo_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/demo"
)

func TestDelayAt_FollowsTheQuantiles(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	const n = 200_000
	within := map[time.Duration]int{}
	never := 0
	for range n {
		d := demo.DelayAt(random.Float64())
		if d < 0 {
			never++
			continue
		}
		for _, limit := range []time.Duration{10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 24 * time.Hour} {
			if d <= limit {
				within[limit]++
			}
		}
	}
	for limit, share := range map[time.Duration]float64{
		10 * time.Minute: 0.098, 15 * time.Minute: 0.346, 30 * time.Minute: 0.561, time.Hour: 0.617, 24 * time.Hour: 0.802,
	} {
		require.InDelta(t, share, float64(within[limit])/n, 0.005, limit)
	}
	require.InDelta(t, 0.018, float64(never)/n, 0.002)
}

func TestCompress_IsAsMuchShorterAsTheLimit(t *testing.T) {
	t.Parallel()
	l := demo.LimitsOf(6 * time.Second) // flash 2 s, presale 12 s
	for _, c := range []struct {
		kind  string
		real  time.Duration
		after time.Duration
		late  bool
	}{
		{"normal", 0, 0, false},
		{"normal", 15 * time.Minute, 3 * time.Second, false},
		{"normal", time.Hour, 12 * time.Second, false},
		{"normal", time.Hour + time.Second, 12 * time.Second, true},
		{"normal", 10000 * time.Hour, 12 * time.Second, true},
		{"flash", 20 * time.Minute, 4 * time.Second, false},
		{"flash", 21 * time.Minute, 4 * time.Second, true},
		{"presale", time.Hour, 12 * time.Second, false},
		{"presale", 24 * time.Hour, 24 * time.Second, true},
	} {
		after, late := l.Compress(c.kind, c.real)
		require.Equal(t, c.after, after, "%s after %v", c.kind, c.real)
		require.Equal(t, c.late, late, "%s after %v", c.kind, c.real)
	}
}

func TestMix_IsTheSameEachTime(t *testing.T) {
	t.Parallel()
	l := demo.LimitsOf(5 * time.Second)
	plan := demo.Mix(2000, l)
	require.Equal(t, plan, demo.Mix(2000, l))
	late, never := 0, 0
	for _, p := range plan {
		require.NotEmpty(t, p.Items())
		if p.Late() {
			late++
		}
		if p.PayAfter() < 0 {
			never++
		}
	}
	require.Greater(t, late, 500)
	require.Greater(t, never, 10)
}

func TestParseOrders(t *testing.T) {
	t.Parallel()
	const file = `order,placed_at,paid_after_s,items
7,2017-11-24T08:30:02Z,900,A-1x2@38.5 B_2x1@0.05
8,2017-11-24T08:30:01Z,,
9,2017-11-24T08:30:03Z,3601,axb.1x3@7
`
	plan, err := demo.ParseOrders(strings.NewReader(file), 0, 6*time.Second)
	require.NoError(t, err)
	require.Len(t, plan, 3)
	require.Equal(t, "file-8", plan[0].Name(), "the order of placing, not of the file")
	require.Equal(t, []demo.Item{{SKU: "UNLISTED", Quantity: 1, Price: 100}}, plan[0].Items())
	require.Negative(t, plan[0].PayAfter())
	require.Equal(t, []demo.Item{{SKU: "A-1", Quantity: 2, Price: 3850}, {SKU: "B_2", Quantity: 1, Price: 5}}, plan[1].Items())
	require.Equal(t, 3*time.Second, plan[1].PayAfter())
	require.False(t, plan[1].Late())
	require.Equal(t, []demo.Item{{SKU: "axb.1", Quantity: 3, Price: 700}}, plan[2].Items())
	require.Equal(t, 12*time.Second, plan[2].PayAfter())
	require.True(t, plan[2].Late())

	plan, err = demo.ParseOrders(strings.NewReader(file), 2, 6*time.Second)
	require.NoError(t, err)
	require.Len(t, plan, 2)
}

func TestParseOrders_NamesLineAndColumn(t *testing.T) {
	t.Parallel()
	const (
		header = "order,placed_at,paid_after_s,items\n"
		good   = "1,2017-11-24T08:30:02Z,900,Ax2@38.5\n"
	)
	for text, want := range map[string]string{
		"":                      "empty",
		header:                  "no orders",
		"order,placed_at\n":     `line 1: is "order,placed_at"`,
		header + good + "2,x\n": "line 3: has 2 columns",
		header + good + "one,2017-11-24T08:30:02Z,900,\n":                           `line 3, column 1 (order): is "one"`,
		header + "-1,2017-11-24T08:30:02Z,900,\n":                                   `line 2, column 1 (order): is "-1"`,
		header + good + good:                                                        "line 2 has it too",
		header + good + "2,yesterday,900,\n":                                        `line 3, column 3 (placed_at): is "yesterday"`,
		header + "2,2017-11-24T08:30:02Z,1.5,\n":                                    `line 2, column 24 (paid_after_s): is "1.5"`,
		header + "2,2017-11-24T08:30:02Z,-1,\n":                                     "(paid_after_s)",
		header + "2,2017-11-24T08:30:02Z,99999999999,\n":                            "(paid_after_s)",
		header + "2,2017-11-24T08:30:02Z,1,A\n":                                     `line 2, column 26 (items): is "A"`,
		header + "2,2017-11-24T08:30:02Z,1,Ax0@1\n":                                 "(items)",
		header + "2,2017-11-24T08:30:02Z,1,Ax1@\n":                                  "(items)",
		header + "2,2017-11-24T08:30:02Z,1,Ax1@1.234\n":                             "(items)",
		header + "2,2017-11-24T08:30:02Z,1,Ax1@-1\n":                                "(items)",
		header + "2,2017-11-24T08:30:02Z,1,Ä1x1@1\n":                                "(items)",
		header + "2,2017-11-24T08:30:02Z,1,Ax1@1 Ax1@1\n":                           "each SKU once",
		header + "2,2017-11-24T08:30:02Z,1," + strings.Repeat("Ax1@1 ", 101) + "\n": "at most 100 items",
		header + "2,\"2017-11-24T08:30:02Z,1,\n":                                    "line 2",
	} {
		_, err := demo.ParseOrders(strings.NewReader(text), 0, time.Second)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseOrders(f *testing.F) {
	f.Add("order,placed_at,paid_after_s,items\n1,2017-11-24T08:30:02Z,900,Ax2@38.5\n")
	f.Add("order,placed_at,paid_after_s,items\n1,2017-11-24T08:30:02Z,,\"A\nx\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		plan, err := demo.ParseOrders(strings.NewReader(text), 0, time.Second)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.NotEmpty(t, plan)
		for _, p := range plan {
			require.LessOrEqual(t, p.PayAfter(), 2*time.Second)
			for _, it := range p.Items() {
				require.NotEmpty(t, it.SKU)
				require.Positive(t, it.Quantity)
				require.GreaterOrEqual(t, it.Price, int64(0))
			}
		}
	})
}

func TestQuantile_IsAValueThatWasMeasured(t *testing.T) {
	t.Parallel()
	require.Zero(t, demo.Quantile(nil, 0.5))
	sorted := []time.Duration{1500 * time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, 40 * time.Millisecond}
	require.InDelta(t, 2, demo.Quantile(sorted, 0.5), 0)
	require.InDelta(t, 40, demo.Quantile(sorted, 0.99), 0)
	require.InDelta(t, 1.5, demo.Quantile(sorted, 0.01), 0)
	require.InDelta(t, 40, demo.Quantile(sorted, 1), 0)
}

func TestTakes_IsUntilTheLastOrderIsOver(t *testing.T) {
	t.Parallel()
	const quiet = time.Second
	l := demo.LimitsOf(30 * time.Second)
	require.Equal(t, quiet, demo.Takes(nil, 1, l))
	require.Equal(t, 10*time.Second+quiet, demo.Takes([]demo.Planned{demo.Unpaid("flash")}, 1, l))
	require.Equal(t, 2*time.Second+30*time.Second+quiet, demo.Takes([]demo.Planned{demo.Paid(0), demo.Paid(0), demo.Unpaid("normal")}, 1, l))
	require.Equal(t, 60*time.Second+quiet, demo.Takes([]demo.Planned{demo.Paid(time.Minute), demo.Paid(time.Second)}, 2, l))
}
