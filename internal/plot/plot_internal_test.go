package plot

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrap_BreaksAtSpaces(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"aa bb", "cc", "dddddddd", "e"}, wrap("aa bb cc dddddddd e", 5))
	require.Equal(t, []string{""}, wrap("", 5))
}

func TestChart_DrawsLogarithms(t *testing.T) {
	t.Parallel()
	widths := func(c Chart) []string {
		var all []string
		for _, m := range regexp.MustCompile(`class="bar" x="16" y="\d+" width="([\d.]+)"`).FindAllStringSubmatch(string(c.SVG()), -1) {
			all = append(all, m[1])
		}
		return all
	}
	bars := []Bar{{Label: "a", Value: .5}, {Label: "b", Value: 10}, {Label: "c", Value: 100}}
	require.Equal(t, []string{"0.0", "337.0", "674.0"}, widths(Chart{Bars: bars, Logarithmic: true}))
	require.Equal(t, []string{"3.4", "67.4", "674.0"}, widths(Chart{Bars: bars}))
}
