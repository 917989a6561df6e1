package main

import (
	"math"
	"slices"
)

// median is the middle of values, or the mean of the two in the middle; values has at least one.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	half := len(v) / 2
	if len(v)%2 == 0 {
		return (v[half-1] + v[half]) / 2
	}
	return v[half]
}

// percentile is the least of values that at least p percent of them do not exceed (the nearest rank); p is above 0 and
// at most 100, values has at least one.
func percentile(values []float64, p float64) float64 {
	v := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(v))))
	return v[max(rank, 1)-1]
}

// percentiles returns the percentile of each round.
func percentiles(rounds [][]float64, p float64) []float64 {
	out := make([]float64, len(rounds))
	for i, values := range rounds {
		out[i] = percentile(values, p)
	}
	return out
}

func extremes(values []float64) (low, high float64) {
	return slices.Min(values), slices.Max(values)
}

// round keeps four significant digits and every digit before the point: more would be noise.
func round(x float64) float64 {
	if x == 0 || math.Abs(x) >= 1000 {
		return math.Round(x)
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// alternate runs a and b in turns, n times each, and lets them take turns at going first.
func alternate(n int, a, b func(i int) error) error {
	for i := range n {
		first, second := a, b
		if i%2 == 1 {
			first, second = b, a
		}
		if err := first(i); err != nil {
			return err
		}
		if err := second(i); err != nil {
			return err
		}
	}
	return nil
}

// interleave measures a and b in turns, rounds times each.
func interleave(rounds int, a, b func() (float64, error)) (as, bs []float64, err error) {
	into := func(out *[]float64, measure func() (float64, error)) func(int) error {
		return func(int) error {
			x, err := measure()
			*out = append(*out, x)
			return err
		}
	}
	err = alternate(rounds, into(&as, a), into(&bs, b))
	return as, bs, err
}
