package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outline is what the README has in every language: its headings' levels, its code, and the settings with their defaults.
type outline struct {
	Levels   []int
	Code     []string
	Settings []string
}

func outlineOf(t *testing.T, file string) (o outline) {
	t.Helper()
	text, err := os.ReadFile("../../" + file)
	require.NoError(t, err)
	setting := regexp.MustCompile("^\\| `[A-Z][A-Z_]+`[^|]*\\|[^|]*\\|")
	fenced := false
	for line := range strings.Lines(string(text)) {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fenced || fence || strings.HasPrefix(line, "    "):
			o.Code = append(o.Code, line)
		case strings.HasPrefix(line, "#"):
			o.Levels = append(o.Levels, strings.Index(line, " "))
		default:
			if row := setting.FindString(line); row != "" {
				o.Settings = append(o.Settings, row)
			}
		}
		fenced = fenced != fence
	}
	return o
}

// Who changes one README changes the other.
func TestREADME_TheChineseOneKeepsStep(t *testing.T) {
	t.Parallel()
	english, chinese := outlineOf(t, "README.md"), outlineOf(t, "README.zh-CN.md")
	require.Greater(t, len(english.Levels), 5)
	require.Greater(t, len(english.Code), 50)
	require.Greater(t, len(english.Settings), 20)
	require.Equal(t, english.Levels, chinese.Levels, "headings")
	require.Equal(t, english.Code, chinese.Code, "code blocks, which are the same in both")
	require.Equal(t, english.Settings, chinese.Settings, "rows of settings")
	for file, other := range map[string]string{"README.md": "README.zh-CN.md", "README.zh-CN.md": "README.md"} {
		text, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		require.Contains(t, string(text), "("+other+")")
	}
	anchors, err := os.ReadFile("../../README.zh-CN.md")
	require.NoError(t, err)
	for _, link := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(string(anchors), -1) {
		require.Regexp(t, `(?im)^## `+regexp.QuoteMeta(link[1])+`$`, string(anchors), "a link that leads nowhere")
	}
}
