package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{5, 5, 1}, 5},
	} {
		require.InDelta(t, c.want, median(c.values), 0, "%v", c.values)
	}
}

func TestMedian_LeavesItsArgumentAlone(t *testing.T) {
	t.Parallel()
	values := []float64{3, 1, 2}
	median(values)
	percentile(values, 50)
	require.Equal(t, []float64{3, 1, 2}, values)
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := make([]float64, 200)
	for i := range values {
		values[i] = float64(200 - i) // 1 to 200
	}
	for _, c := range []struct{ p, want float64 }{{0.1, 1}, {50, 100}, {99, 198}, {99.5, 199}, {99.6, 200}, {100, 200}} {
		require.InDelta(t, c.want, percentile(values, c.p), 0, "p%v", c.p)
	}
}

func TestPercentile_SplitsTheValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "values")
		p := float64(rapid.IntRange(1, 100).Draw(t, "p"))
		at := percentile(values, p)
		var below, upTo int
		for _, v := range values {
			if v < at {
				below++
			}
			if v <= at {
				upTo++
			}
		}
		n := float64(len(values))
		require.GreaterOrEqual(t, float64(upTo)*100, p*n)
		require.Less(t, float64(below)*100, p*n)
	})
}

func TestPercentiles_AreOfEachRound(t *testing.T) {
	t.Parallel()
	require.Equal(t, []float64{2, 5}, percentiles([][]float64{{3, 1, 2}, {5, 4, 6}}, 50))
}

func TestRound_KeepsFourDigits(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]float64{
		0: 0, 12345.6: 12346, 999.96: 1000, 1.23456: 1.235, 0.70049: 0.7005, 0.000123456: 0.0001235, -2.34567: -2.346,
	} {
		require.InDelta(t, want, round(x), 1e-12)
	}
}

func TestInterleave_TakesTurnsAtGoingFirst(t *testing.T) {
	t.Parallel()
	var order string
	measure := func(name string, value float64) func() (float64, error) {
		return func() (float64, error) {
			order += name
			return value, nil
		}
	}
	as, bs, err := interleave(3, measure("a", 1), measure("b", 2))
	require.NoError(t, err)
	require.Equal(t, "abbaab", order)
	require.Equal(t, []float64{1, 1, 1}, as)
	require.Equal(t, []float64{2, 2, 2}, bs)
}

func TestAlternate_EndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	calls := 0
	count := func(int) error {
		calls++
		return nil
	}
	require.ErrorIs(t, alternate(3, count, func(int) error { return broken }), broken)
	require.ErrorIs(t, alternate(3, func(int) error { return broken }, count), broken)
	require.Equal(t, 1, calls)
}

func TestLine_HasTheKeysOfTheContract(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := compared("relay", "small", "msg/s", []float64{6000, 7000.4, 5000}, []float64{10_000, 9000, 11_000})
	l.MsgsPerS, l.RawMsgsPerS = l.Median, *l.Ceiling
	l.Exchange, l.Aim, l.Met = "stand-in", 0.6, true
	require.NoError(t, l.write(&out))
	require.JSONEq(t, `{"bench": "relay", "variant": "small", "unit": "msg/s", "rounds": 3, "median": 6000, "min": 5000,
		"max": 7000, "ceiling": 10000, "ratio": 0.6, "aim": 0.6, "met": true, "msgs_per_s": 6000, "raw_msgs_per_s": 10000,
		"exchange": "stand-in"}`, out.String())
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))

	out.Reset()
	l = alone("memory", "small", "MiB", []float64{30, 20})
	require.NoError(t, l.write(&out))
	require.JSONEq(t, `{"bench": "memory", "variant": "small", "unit": "MiB", "rounds": 2, "median": 25, "min": 20,
		"max": 30, "ceiling": null, "ratio": null, "aim": 0, "met": false}`, out.String())
}
