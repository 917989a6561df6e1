package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is also a contender's process: the comparison starts its own program for these.
func TestMain(m *testing.M) {
	if text := os.Getenv(settingsVariable); text != "" {
		if err := runChild(context.Background(), text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func startAll(t *testing.T) *services {
	t.Helper()
	s, err := startServices(t.Context(), os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func start(t *testing.T, s *services, e entry, number int, timeout time.Duration) *team {
	t.Helper()
	team, err := newTeam(t.Context(), s, e, "test", number, map[string]time.Duration{"normal": timeout})
	require.NoError(t, err, e.name)
	require.NoError(t, team.Start(t.Context()), e.name)
	t.Cleanup(team.Stop)
	return team
}

// Each contender closes what is not paid, once, and leaves alone what is.
func TestContenders_CloseASimpleOrder(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	s := startAll(t)
	for i, e := range entries() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			team := start(t, s, e, i+1, timeout)
			db, err := team.open()
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			buyer := newClient(team)
			for _, no := range []string{"unpaid", "paid"} {
				require.NoError(t, buyer.post(t.Context(), "/place", order{No: no, Phase: "test", Kind: "normal", SKU: 1, Quantity: 2, Timeout: timeout}))
			}
			require.NoError(t, buyer.post(t.Context(), "/place", order{No: "unpaid", Phase: "test", Kind: "normal", SKU: 1, Quantity: 2, Timeout: timeout}), "again")
			require.NoError(t, buyer.post(t.Context(), "/pay", order{No: "paid"}))
			require.Eventually(t, func() bool {
				c, err := count(t.Context(), db, "test", time.Now())
				require.NoError(t, err)
				return c.Closed == 1
			}, time.Minute, 100*time.Millisecond)
			require.NoError(t, sleepUntil(t.Context(), time.Now().Add(timeout)))
			c, err := count(t.Context(), db, "test", time.Now())
			require.NoError(t, err)
			require.Less(t, c.Max, time.Minute)
			c = withoutTimes(c)
			c.Early, c.Again, c.Vain = 0, 0, 0 // are what the comparison is for
			require.Equal(t, tally{Placed: 2, Paid: 1, Closed: 1}, c)
			adds, err := conserved(t.Context(), db)
			require.NoError(t, err)
			require.True(t, adds)
		})
	}
}

func withoutTimes(c tally) tally {
	c.First, c.P50, c.P99, c.Max, c.Drained, c.Spread = 0, 0, 0, 0, 0, 0
	return c
}

// What is counted is right, for a contender that is wrong on purpose.
func TestCount_SeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const orders, timeout = 200, 2 * time.Second
	s := startAll(t)
	team := start(t, s, broken(), 1, timeout)
	db, err := team.open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var want tally
	want.Placed = orders
	sales := make([]sale, orders)
	for i := range sales {
		no := fmt.Sprintf("o-%d", i)
		sales[i].order = order{No: no, Phase: "test", Kind: "normal", SKU: i % products, Quantity: 1, Timeout: timeout}
		switch badness(no) {
		case badLost:
			want.Never++
		case badTwice:
			want.Twice++
		case badAgain:
			want.Again++
		case badEarly:
			want.Early++
		}
	}
	want.Closed = orders - want.Never
	require.Greater(t, want.Never, 5)
	require.Greater(t, want.Twice, 5)
	require.Greater(t, want.Again, 5)
	require.Greater(t, want.Early, 5)
	require.NoError(t, newClient(team).sell(t.Context(), time.Now(), sales))
	require.Eventually(t, func() bool {
		c, err := count(t.Context(), db, "", time.Now())
		require.NoError(t, err)
		return c.Closed == want.Closed && c.Never == want.Never && c.Again == want.Again
	}, time.Minute, 100*time.Millisecond)
	c, err := count(t.Context(), db, "test", time.Now())
	require.NoError(t, err)
	require.Negative(t, c.First)
	require.Greater(t, c.Drained, time.Duration(0))
	require.Greater(t, c.Spread, time.Duration(0))
	require.Equal(t, want, withoutTimes(c))
	adds, err := conserved(t.Context(), db)
	require.NoError(t, err)
	require.True(t, adds)

	_, err = db.ExecContext(t.Context(), "INSERT INTO journal (order_no, what, at) SELECT order_no, 'paid', at FROM journal WHERE what = 'closed' LIMIT 1")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE products SET available = available + 1 WHERE sku = 1")
	require.NoError(t, err)
	c, err = count(t.Context(), db, "", time.Now())
	require.NoError(t, err)
	require.Equal(t, 1, c.Both)
	adds, err = conserved(t.Context(), db)
	require.NoError(t, err)
	require.False(t, adds)
}

func TestPayAfter_FollowsTheQuantiles(t *testing.T) {
	t.Parallel()
	for u, want := range map[float64]float64{0: 0, .098: 1. / 3, .346: .5, .561: 1, .617: 2} {
		got, ever := payAfter(u, time.Hour)
		require.True(t, ever)
		require.InDelta(t, want, got.Hours(), 1e-6)
	}
	_, ever := payAfter(.9, time.Hour)
	require.False(t, ever)
}

func TestRun_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for want, args := range map[string][]string{
		`-only: there is no "scann", but scan, `:  {"-only", "scan,scann"},
		`-phases: there is no "clam", but calm, `: {"-phases", "clam"},
		"arguments that are no flags: fast":       {"fast"},
		"there is at least one order":             {"-orders", "0"},
		"-lines goes with -docs":                  {"-lines", file},
		"not a directory":                         {"-docs", file},
		"EOF":                                     {"-lines", file, "-docs", t.TempDir()},
	} {
		require.ErrorContains(t, run(t.Context(), args, io.Discard, io.Discard), want)
	}
}

func TestRead_TakesWhatWasWrittenAndNothingElse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "comparison.json")
	good := results{
		Orders: 1, Waiting: 1, Quiet: 1, Phases: []string{"calm"}, Alone: map[string]alone{"scan": {}},
		Together: map[string]map[string]tally{"scan": {"": {Placed: 1}, "calm": {Placed: 1}}},
	}
	try := func(text []byte) (results, error) {
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return read(file)
	}
	var text bytes.Buffer
	require.NoError(t, write(&text, good))
	got, err := try(text.Bytes())
	require.NoError(t, err)
	require.Equal(t, good, got)
	for want, change := range map[string]func(r *results){
		`there is no contender "nobody"`: func(r *results) { r.Together["nobody"] = nil },
		`scan has no phase "burst"`:      func(r *results) { r.Phases = append(r.Phases, burst) },
		"scan has not run alone":         func(r *results) { r.Alone = nil },
		"it is not complete":             func(r *results) { r.Waiting = 0 },
	} {
		bad, err := try(text.Bytes())
		require.NoError(t, err)
		change(&bad)
		var changed bytes.Buffer
		require.NoError(t, write(&changed, bad))
		_, err = try(changed.Bytes())
		require.ErrorContains(t, err, want)
	}
	_, err = try([]byte(`{"Foreign": 1}`))
	require.ErrorContains(t, err, "unknown field")
	_, err = try(text.Bytes()[:text.Len()/2])
	require.ErrorContains(t, err, "unexpected EOF")
}

func TestPhases_HaveSoManyOrdersInAll(t *testing.T) {
	t.Parallel()
	sizes := func(fast bool, only []string) (of map[string]int, sum int) {
		of = map[string]int{}
		for _, p := range phases(2003, fast, only) {
			of[p.name] = p.orders
			sum += p.orders
		}
		return of, sum
	}
	for fast, usual := range map[bool][]string{false: nil, true: fastPhases()} {
		whole, sum := sizes(fast, usual)
		require.Equal(t, 2003, sum)
		part, _ := sizes(fast, []string{"calm", "broker-kill"})
		require.Equal(t, map[string]int{"calm": whole["calm"], "broker-kill": whole["broker-kill"]}, part)
	}
	other, _ := sizes(true, []string{"worker-frozen"})
	require.Equal(t, map[string]int{"worker-frozen": 501}, other)
}

func TestReport_SaysWhatWasMeasured(t *testing.T) {
	t.Parallel()
	r := results{
		Orders: 1000, Quiet: 100, Waiting: 1000, Phases: []string{"calm", burst, "broker-kill"}, Conserved: map[string]bool{"scan": true},
		Together: map[string]map[string]tally{
			"scan":       {burst: {Placed: 1000, Closed: 1000}},
			"scan-paged": {burst: {Placed: 1000, Closed: 1000, Drained: 5 * time.Second}},
			"delayed":    {"": {Placed: 1000, Never: 77, Again: 3}, "broker-kill": {Placed: 1000, Paid: 100, Never: 77, After: 2, Again: 3}},
		},
		Alone: map[string]alone{"scan": {IdleRowsPerS: 100}},
	}
	files, err := report(r)
	require.NoError(t, err)
	text := string(files["comparison.md"])
	require.Contains(t, text, "| x-delayed-message exchange alone (stand-in) | **77** of 900 / –, after it 2, again 3 |")
	require.Contains(t, text, "these stayed open, by what failed in their phase: x-delayed-message exchange alone (stand-in) (Broker: 77).")
	require.Contains(t, text, "**Reads the whole table over and over**, and is left out of these, because each order ever taken makes it slower: table scan on a timer (100 rows a second beside 100 orders).")
	require.Contains(t, text, "**1,000,000 orders a day**, 116 a second when the busiest has 10 times the mean, nothing lost, on this machine: table scan, indexed, paged, under a lock.")
	require.Len(t, files, 3)
	for name, text := range files {
		require.NotContains(t, string(text), "NaN", name)
	}
	_, err = report(results{})
	require.Error(t, err)

	r.Failed = []string{"redis-kill: it did not start again"}
	files, err = report(r)
	require.NoError(t, err)
	require.Contains(t, string(files["comparison.md"]), "**Not all was done**, so that what follows cannot be compared: redis-kill: it did not start again.")
	require.ErrorContains(t, r.failure(), "redis-kill")
}
