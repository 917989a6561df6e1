// Package plot draws bars as SVG that can be read on a light page and on a dark one.
package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Bar is a row of a chart.
type Bar struct {
	Label, Figure string
	Value         float64
	Low, High     float64 // the spread; both 0: none
	Aim           float64 // 0: none
	Missed        bool    // in another colour
}

// Chart is bars from zero, one below the other.
type Chart struct {
	Title, Says string
	Mark        float64 // a value that is marked in each bar; 0: none
	Logarithmic bool    // bars as long as the logarithm of their values, from 1
	Bars        []Bar
}

// Measures in pixels.
const (
	width      = 820
	left       = 16
	right      = 130 // of the bars: room for a figure
	top        = 44
	barHeight  = 16
	lineHeight = 16
	rowGap     = 14
	lineChars  = 110 // of a label
)

// style has colours of its own for a page that is dark, and a background, so that it can be read on any page.
const style = `<style>
.back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .bar { fill: #2f6fbb } .missed { fill: #b35900 }
.spread { stroke: #1f2328 } .mark { stroke: #59636e } .aim { stroke: #1a7f37 }
text { font: 13px system-ui, "DejaVu Sans", sans-serif } .faint { font-size: 12px }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .bar { fill: #5b9be6 } .missed { fill: #e3953c }
.spread { stroke: #e6edf3 } .mark { stroke: #9198a1 } .aim { stroke: #4ac26b }
}
</style>
`

// SVG is the chart as a document of its own.
func (c Chart) SVG() []byte {
	most := c.Mark
	for _, b := range c.Bars {
		most = max(most, b.Value, b.High, b.Aim)
	}
	if most == 0 {
		most = 1
	}
	x := func(value float64) float64 {
		if c.Logarithmic {
			return left + math.Log(max(1, value))/math.Log(max(2, most))*(width-left-right)
		}
		return left + value/most*(width-left-right)
	}
	var body bytes.Buffer
	y := top
	for _, b := range c.Bars {
		y = c.draw(&body, b, y, x)
	}
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", width, y, width, y)
	svg.WriteString("<title>")
	_ = xml.EscapeText(&svg, []byte(c.Title)) // a buffer takes everything
	svg.WriteString("</title>\n" + style)
	fmt.Fprintf(&svg, `<rect class="back" width="%d" height="%d" rx="6"/>`+"\n", width, y)
	write(&svg, "faint", left, 24, c.Title+": "+c.Says)
	svg.Write(body.Bytes())
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}

// draw draws a bar below y, and returns where the next one begins.
func (c Chart) draw(body *bytes.Buffer, b Bar, y int, x func(float64) float64) int {
	for _, text := range wrap(b.Label, lineChars) {
		write(body, "text", left, float64(y)+12, text)
		y += lineHeight
	}
	class := "bar"
	if b.Missed {
		class = "missed"
	}
	middle := float64(y) + barHeight/2
	fmt.Fprintf(body, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", class, left, y, x(b.Value)-left, barHeight)
	if b.Low != 0 || b.High != 0 {
		fmt.Fprintf(body, `<path class="spread" d="M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8" stroke-width="1.5"/>`+"\n",
			x(b.Low), middle, x(b.High), x(b.Low), middle-4, x(b.High), middle-4)
	}
	if c.Mark != 0 {
		fmt.Fprintf(body, `<path class="mark" d="M%.1f %dv%d" stroke-width="2" stroke-dasharray="4 3"/>`+"\n", x(c.Mark), y-2, barHeight+4)
	}
	if b.Aim != 0 {
		fmt.Fprintf(body, `<path class="aim" d="M%.1f %dv%d" stroke-width="2.5"/>`+"\n", x(b.Aim), y-2, barHeight+4)
	}
	write(body, "text", x(max(b.Value, b.High, b.Aim))+8, middle+5, b.Figure)
	return y + barHeight + rowGap
}

func write(b *bytes.Buffer, class string, x, y float64, text string) {
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
