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

// interleave measures a and b in turns, rounds times each, and lets them take turns at going first.
func interleave(rounds int, a, b func(round int) (float64, error)) (as, bs []float64, err error) {
	for i := range rounds {
		turns := []struct {
			measure func(int) (float64, error)
			into    *[]float64
		}{{a, &as}, {b, &bs}}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, t := range turns {
			x, err := t.measure(i)
			if err != nil {
				return nil, nil, err
			}
			*t.into = append(*t.into, x)
		}
	}
	return as, bs, nil
}
