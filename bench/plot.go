package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// The measures of a plot, in pixels.
const (
	plotWidth  = 820
	plotLeft   = 16
	plotRight  = 130 // of the bars: room for a figure
	plotTop    = 44
	barHeight  = 16
	lineHeight = 16
	rowGap     = 14
	lineChars  = 110 // of a label
)

// style has colours of its own for a page that is dark, and a background, so that it can be read on any page.
const plotStyle = `<style>
.back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .bar { fill: #2f6fbb } .missed { fill: #b35900 }
.spread { stroke: #1f2328 } .mark { stroke: #59636e } .aim { stroke: #1a7f37 }
text { font: 13px system-ui, "DejaVu Sans", sans-serif } .faint { font-size: 12px }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .bar { fill: #5b9be6 } .missed { fill: #e3953c }
.spread { stroke: #e6edf3 } .mark { stroke: #9198a1 } .aim { stroke: #4ac26b }
}
</style>
`

// bar is a row of a plot.
type bar struct {
	label, figure  string
	value          float64
	low, high, aim float64
	met            bool
}

// drawPlot draws the lines of a benchmark as bars from zero, with the spread of their rounds and their aims: ratios where all have one, so that they can be
// compared whatever they are of, else medians.
func drawPlot(lines []line) []byte {
	ratios := true
	for _, l := range lines {
		ratios = ratios && l.Ratio != nil && l.Ceiling != nil && *l.Ceiling > 0
	}
	bars := make([]bar, len(lines))
	most := 0.0
	for i, l := range lines {
		b := bar{label: l.Variant, figure: fmt.Sprintf("%v %s", l.Median, l.Unit), value: l.Median, low: l.Min, high: l.Max, aim: l.Aim, met: l.Met}
		if ratios {
			b.figure = fmt.Sprint(*l.Ratio)
			b.value, b.low, b.high = *l.Ratio, l.Min / *l.Ceiling, l.Max / *l.Ceiling
			most = max(most, 1)
		}
		most = max(most, b.value, b.high, b.aim)
		bars[i] = b
	}
	if most == 0 {
		most = 1
	}
	x := func(value float64) float64 { return plotLeft + value/most*(plotWidth-plotLeft-plotRight) }

	var body bytes.Buffer
	y := plotTop
	for _, b := range bars {
		for _, text := range wrap(b.label, lineChars) {
			writeText(&body, "text", plotLeft, float64(y)+12, text)
			y += lineHeight
		}
		class := "bar"
		if !b.met {
			class = "missed"
		}
		middle := float64(y) + barHeight/2
		fmt.Fprintf(&body, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", class, plotLeft, y, x(b.value)-plotLeft, barHeight)
		fmt.Fprintf(&body, `<path class="spread" d="M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8" stroke-width="1.5"/>`+"\n",
			x(b.low), middle, x(b.high), x(b.low), middle-4, x(b.high), middle-4)
		if ratios {
			fmt.Fprintf(&body, `<path class="mark" d="M%.1f %dv%d" stroke-width="2" stroke-dasharray="4 3"/>`+"\n", x(1), y-2, barHeight+4)
		}
		fmt.Fprintf(&body, `<path class="aim" d="M%.1f %dv%d" stroke-width="2.5"/>`+"\n", x(b.aim), y-2, barHeight+4)
		writeText(&body, "text", x(max(b.value, b.high, b.aim))+8, middle+5, b.figure)
		y += barHeight + rowGap
	}
	what := "median; thin: least to greatest of the rounds; green: the aim; orange: missed"
	if ratios {
		what = "ratio to what it is beside (dashed: 1); thin: least to greatest of the rounds; green: the aim; orange: missed"
	}
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", plotWidth, y, plotWidth, y)
	svg.WriteString("<title>")
	_ = xml.EscapeText(&svg, []byte(lines[0].Bench)) // a buffer takes everything
	svg.WriteString("</title>\n" + plotStyle)
	fmt.Fprintf(&svg, `<rect class="back" width="%d" height="%d" rx="6"/>`+"\n", plotWidth, y)
	writeText(&svg, "faint", plotLeft, 24, lines[0].Bench+": "+what)
	svg.Write(body.Bytes())
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}

func writeText(b *bytes.Buffer, class string, x, y float64, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f">`, class, x, y)
	_ = xml.EscapeText(b, []byte(text))
	b.WriteString("</text>\n")
}

// wrap divides text into lines of at most so many characters, at spaces. A longer word stays whole.
func wrap(text string, most int) (out []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > most {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
