package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// madeByHand are lines as they are printed: with a ratio, without one, and one that misses its aim.
func madeByHand() string {
	return `{"bench":"relay","variant":"old | <b>","unit":"msg/s","rounds":5,"median":1,"min":1,"max":1,"ceiling":10,"ratio":0.1,"aim":0.6,"met":false}
{"bench":"memory","variant":"many rows","unit":"MiB","rounds":5,"median":31.5,"min":30,"max":40,"ceiling":null,"ratio":null,"aim":100,"met":true,
	"database":"10.11.19-MariaDB-0+deb12u1","broker":"3.10.8","exchange":"stand-in","buffer_pool_mb":256,"flush_log_at_commit":1}
{"bench":"lateness","variant":"one after the other","unit":"ms","rounds":1,"median":12,"min":1,"max":90,"ceiling":null,"ratio":null,"aim":25,"met":true,"lateness_ms":{"p50":1,"p99":12,"max":90},"flags":"-burst 200 -idle 40"}
{"bench":"relay","variant":"old | <b>","unit":"msg/s","rounds":5,"median":6000,"min":5000,"max":7000,"ceiling":10000,"ratio":0.6,"aim":0.6,"met":true,"buffer_pool_mb":8192}
{"bench":"flat","variant":"lookup","unit":"ms","rounds":5,"median":0.3,"min":0.2,"max":0.5,"ceiling":0.2,"ratio":1.5,"aim":1.2,"met":false}
`
}

func handLines(t *testing.T) []line {
	t.Helper()
	lines, err := readLines(strings.NewReader(madeByHand()))
	require.NoError(t, err)
	return lines
}

func TestReadLines_TheLastOfAMeasurementCounts(t *testing.T) {
	t.Parallel()
	lines := handLines(t)
	require.Len(t, lines, 4)
	require.Equal(t, "relay", lines[0].Bench, "in the place of the first")
	require.InDelta(t, 6000, lines[0].Median, 0)
	require.Equal(t, "10.11.19-MariaDB-0+deb12u1", lines[1].Database)
	for text, want := range map[string]string{
		`{"bench": "relay"} {`: "measurement 2",
		`{"variant": "x"}`:     "names no benchmark",
		`MariaDB listens`:      "measurement 1",
	} {
		_, err := readLines(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

func TestPage_SaysWhatWasMeasuredAndOnWhat(t *testing.T) {
	t.Parallel()
	files, err := page(machine{cpu: "Some | CPU", cores: 2, memory: 24 << 30, golang: "1.26"}, handLines(t))
	require.NoError(t, err)
	md := string(files["benchmarks.md"])
	for _, want := range []string{
		`| processor | Some \| CPU, 2 cores |`, "| memory | 24.0 GiB |", "| Go | 1.26 |", "| database | MariaDB 10.11.19 |", "| RabbitMQ | 3.10.8 |",
		"`make bench BENCH=memory`", "`make .bin/bench && .bin/bench -burst 200 -idle 40 lateness`",
		"| delayed exchange | stand-in |", "| `innodb_flush_log_at_trx_commit` | 1 |",
		"| `innodb_buffer_pool_size` | 8192 MiB (relay); 256 MiB (memory) |",
		"\n## relay\n\n`make bench BENCH=relay`\n\n![relay](benchmarks/relay.svg)\n",
		`| old \| &lt;b> | 6000 msg/s | 5000 to 7000 | 5 | 10000 msg/s | 0.6 | ≥ 0.6 | yes |`,
		`| many rows | 31.5 MiB | 30 to 40 | 5 |  |  | ≤ 100 | yes |`,
		`| lookup | 0.3 ms | 0.2 to 0.5 | 5 | 0.2 ms | 1.5 | ≤ 1.2 | **no** |`,
		"lateness_ms p50 1 p99 12 max 90",
		"| what | median | least to greatest | rounds | beside | ratio | aim | met | more |",
	} {
		require.Contains(t, md, want)
	}
	require.NotContains(t, md, "deb12", "how it was packed")
	var stored []kept
	require.NoError(t, json.Unmarshal(files["benchmarks.json"], &stored))
	require.Equal(t, []kept{
		{"relay", "old | <b>", "msg/s", "ratio", 0.6}, {"memory", "many rows", "MiB", "median", 31.5}, {"flat", "lookup", "ms", "ratio", 1.5},
	}, stored)
}

// A plot is well-formed, knows both schemes of colours, has all the text and keeps within its frame.
func TestDrawPlot_CanBeRead(t *testing.T) {
	t.Parallel()
	zero, some := 0.0, 1.0
	for name, lines := range map[string][]line{
		"by hand":       handLines(t),
		"a ratio":       handLines(t)[:1],
		"nothing":       {{Bench: "x", Variant: "nothing & no one"}},
		"a zero beside": {{Bench: "x", Variant: "y", Median: 1, Max: 2, Ceiling: &zero, Ratio: &some}},
		"long":          {{Bench: "x", Variant: strings.Repeat("word ", 60), Median: 1e9, Max: 2e9, Unit: "msg/s"}},
	} {
		svg := drawPlot(lines)
		var text strings.Builder
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
			switch token := token.(type) {
			case xml.CharData:
				text.Write(token)
			case xml.StartElement:
				for _, a := range token.Attr {
					if token.Name.Local == "rect" && a.Name.Local == "width" {
						width, err := strconv.ParseFloat(a.Value, 64)
						require.NoError(t, err, name)
						require.LessOrEqual(t, width, 820.0, name)
						require.GreaterOrEqual(t, width, 0.0, name)
					}
				}
			}
		}
		for _, l := range lines {
			require.Contains(t, strings.Join(strings.Fields(text.String()), " "), strings.Join(strings.Fields(l.Variant), " "), name)
		}
		require.Contains(t, string(svg), "prefers-color-scheme: dark")
		require.NotContains(t, string(svg), "NaN", name)
		require.NotContains(t, string(svg), "Inf", name)
	}
}

func TestRun_WritesThePageOfLinesThatAreThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	given := filepath.Join(dir, "lines.json")
	require.NoError(t, os.WriteFile(given, []byte(madeByHand()), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, plots), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, plots, "gone.svg"), nil, 0o600))
	read := func() (all string) {
		for _, name := range []string{"benchmarks.md", "benchmarks.json", "benchmarks/relay.svg", "benchmarks/memory.svg", "benchmarks/lateness.svg", "benchmarks/flat.svg"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.NotEmpty(t, text)
			all += string(text)
		}
		return all
	}
	require.Equal(t, 0, run(t.Context(), []string{"-docs", dir, "-lines", given}, io.Discard, io.Discard))
	first := read()
	require.NoFileExists(t, filepath.Join(dir, plots, "gone.svg"))
	require.Equal(t, 0, run(t.Context(), []string{"-docs", dir, "-lines", given}, io.Discard, io.Discard))
	require.Equal(t, first, read(), "the same lines make the same page")

	empty := filepath.Join(dir, "empty.json")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"there is no measurement": {"-docs", dir, "-lines", empty},
		"no such file":            {"-docs", dir, "-lines", filepath.Join(dir, "none.json")},
	} {
		var log bytes.Buffer
		require.Equal(t, 1, run(t.Context(), args, io.Discard, &log))
		require.Contains(t, log.String(), want)
	}
	require.Equal(t, first, read(), "what fails changes nothing")
	var log bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"-lines", given}, io.Discard, &log))
	require.Contains(t, log.String(), "-lines needs -docs")
}

func TestDatabaseName(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"10.11.19-MariaDB-0+deb12u1-log": "MariaDB 10.11.19", "9.1.0-2": "MySQL 9.1.0", "8.4.3": "MySQL 8.4.3", "": ""} {
		require.Equal(t, want, databaseName(version))
	}
}

func TestThisMachine_IsRead(t *testing.T) {
	t.Parallel()
	m, err := thisMachine()
	require.NoError(t, err)
	require.NotEmpty(t, m.cpu)
	require.Positive(t, m.cores)
	require.Greater(t, m.memory, int64(1<<28))
	_, err = field(strings.NewReader("a: b\n"), "here", "c")
	require.ErrorContains(t, err, "here has no c")
}
