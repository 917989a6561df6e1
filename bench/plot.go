package main

import (
	"fmt"

	"github.com/duebox/duebox/internal/plot"
)

// drawPlot draws the lines of a benchmark as bars from zero, with the spread of their rounds and their aims: ratios where all have one, so that they can be
// compared whatever they are of, else medians.
func drawPlot(lines []line) []byte {
	ratios := true
	for _, l := range lines {
		ratios = ratios && l.Ratio != nil && l.Ceiling != nil && *l.Ceiling > 0
	}
	c := plot.Chart{Title: lines[0].Bench, Says: "median; thin: least to greatest of the rounds; green: the aim; orange: missed"}
	if ratios {
		c.Says, c.Mark = "ratio to what it is beside (dashed: 1); thin: least to greatest of the rounds; green: the aim; orange: missed", 1
	}
	for _, l := range lines {
		b := plot.Bar{Label: l.Variant, Figure: fmt.Sprintf("%v %s", l.Median, l.Unit), Value: l.Median, Low: l.Min, High: l.Max, Aim: l.Aim, Missed: !l.Met}
		if ratios {
			b.Figure = fmt.Sprint(*l.Ratio)
			b.Value, b.Low, b.High = *l.Ratio, l.Min / *l.Ceiling, l.Max / *l.Ceiling
		}
		c.Bars = append(c.Bars, b)
	}
	return c.SVG()
}
