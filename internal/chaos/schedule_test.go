package chaos_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/chaos"
	"github.com/duebox/duebox/internal/devenv"
)

func TestDraw_IsTheSameForASeed(t *testing.T) {
	t.Parallel()
	first := chaos.Draw(7, time.Hour, devenv.ExchangeStandIn)
	again := chaos.Draw(7, time.Hour, devenv.ExchangeStandIn)
	require.Equal(t, first, again)
	require.NotEqual(t, first, chaos.Draw(8, time.Hour, devenv.ExchangeStandIn))
}

func TestDraw_DealsEveryKindBeforeAnyTwice(t *testing.T) {
	t.Parallel()
	all := chaos.Kinds(devenv.ExchangeStandIn)
	for seed := range uint64(100) {
		var dealt []chaos.Kind
		for _, step := range chaos.Draw(seed, time.Hour, devenv.ExchangeStandIn) {
			for _, f := range step.Faults {
				dealt = append(dealt, f.Kind)
			}
		}
		require.Greater(t, len(dealt), 2*len(all))
		for round := range slices.Chunk(dealt, len(all)) {
			if len(round) == len(all) {
				require.ElementsMatch(t, all, round)
			}
		}
	}
}

func TestDraw_LeavesNewQueuesAloneForAWhile(t *testing.T) {
	t.Parallel()
	has := func(s chaos.Step, k chaos.Kind) bool {
		return slices.ContainsFunc(s.Faults, func(f chaos.Fault) bool { return f.Kind == k })
	}
	seen := 0
	for seed := range uint64(100) {
		steps := chaos.Draw(seed, time.Hour, devenv.ExchangeStandIn)
		for i, step := range steps[1:] {
			if has(steps[i], chaos.WipeBroker) && has(step, chaos.KillBroker) {
				require.GreaterOrEqual(t, step.Pause, 10*time.Second)
				seen++
			}
		}
	}
	require.NotZero(t, seen)
}

func TestCalendar_AsksPunctualityOnlyWhenNothingIsWrong(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		created, published, due float64
		class                   string
	}{
		"long before":                      {0, 1, 89, "quiet"},
		"a moment before":                  {0, 1, 91, "faulty"},
		"meanwhile":                        {0, 1, 105, "faulty"},
		"while it recovers":                {0, 1, 119, "faulty"},
		"when it has recovered":            {0, 1, 121, "quiet"},
		"handed over meanwhile":            {100, 105, 130, "handed"},
		"handed over while it recovers":    {100, 119, 130, "handed"},
		"handed over before":               {98, 99, 130, "quiet"},
		"before a silent fault":            {0, 1, 189, "quiet"},
		"held when one came":               {0, 1, 240, "unheard"},
		"written just after a silent one":  {215, 216, 240, "unheard"},
		"written when that was long over":  {221, 222, 240, "quiet"},
		"written before, and due at a bad": {0, 1, 205, "faulty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.class, chaos.Classify(at(c.created), at(c.published), at(c.due),
				chaos.Span{Begin: at(100), End: at(110)}, chaos.Span{Begin: at(200), End: at(210), Silent: true}))
		})
	}
}
