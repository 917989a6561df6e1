package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuard_FailsWhatIsWorse(t *testing.T) {
	t.Parallel()
	of := func(unit string, median float64, ratio *float64) line {
		return line{Bench: "b", Variant: "v", Unit: unit, Median: median, Ratio: ratio}
	}
	half, point, low, one, more, most := 0.5, 0.8, 0.79, 1.0, 1.25, 1.26
	for name, c := range map[string]struct {
		stored, now line
		worse       bool
	}{
		"a rate, the same":                {of("msg/s", 1, &one), of("msg/s", 9, &one), false},
		"a rate, just good enough":        {of("msg/s", 1, &one), of("msg/s", 1, &point), false},
		"a rate, too low":                 {of("msg/s", 1, &one), of("msg/s", 9, &low), true},
		"a rate, better":                  {of("msg/s", 1, &half), of("msg/s", 1, &one), false},
		"a time, just good enough":        {of("ms", 1, &one), of("ms", 1, &more), false},
		"a time, too long":                {of("ms", 1, &one), of("ms", 1, &most), true},
		"a time, better":                  {of("ms", 1, &one), of("ms", 1, &half), false},
		"memory beside memory, too much":  {of("MiB", 1, &one), of("MiB", 1, &most), true},
		"memory, just good enough":        {of("MiB", 40, nil), of("MiB", 50, nil), false},
		"memory, too much":                {of("MiB", 40, nil), of("MiB", 50.1, nil), true},
		"queries for nothing, too many":   {of("queries/s", 8, nil), of("queries/s", 10.1, nil), true},
		"queries for nothing, fewer":      {of("queries/s", 8, nil), of("queries/s", 1, nil), false},
		"a time alone: the machine's":     {of("ms", 1, nil), of("ms", 100, nil), false},
		"stored of something else":        {of("MiB", 40, nil), of("MiB", 400, &half), false},
		"another variant":                 {line{Bench: "b", Variant: "w", Unit: "MiB", Median: 1}, of("MiB", 400, nil), false},
		"another benchmark, same variant": {line{Bench: "c", Variant: "v", Unit: "MiB", Median: 1}, of("MiB", 400, nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := page(machine{}, []line{c.stored})
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "stored.json")
			require.NoError(t, os.WriteFile(file, files["benchmarks.json"], 0o600))
			g, err := readGuard(file, io.Discard)
			require.NoError(t, err)
			err = g.check(c.now)
			if !c.worse {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "b: v: the ")
			require.ErrorContains(t, err, "is stored: worse than 0.8 of that")
		})
	}
}

func TestReadGuard_WithoutAFileThereIsNothingToHoldAgainst(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none.json")
	for file, said := range map[string]string{"": "", missing: "bench: there is no " + missing + ": nothing is stored, so nothing is held against it\n"} {
		var log bytes.Buffer
		g, err := readGuard(file, &log)
		require.NoError(t, err)
		require.Empty(t, g)
		require.Equal(t, said, log.String())
	}
	broken := filepath.Join(t.TempDir(), "broken.json")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	_, err := readGuard(broken, io.Discard)
	require.ErrorContains(t, err, "read stored figures")
}

// What "make bench" does: an aim that is missed is said, a figure that is worse than the stored one is an error.
func TestGuardReport_AsksForAnErrorWhenAFigureIsWorse(t *testing.T) {
	t.Parallel()
	one := 1.0
	for want, figure := range map[int]float64{0: 1.2, 1: 1.3} {
		files, err := page(machine{}, []line{{Bench: "b", Variant: "v", Unit: "ms", Ratio: &one}})
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "stored.json")
		require.NoError(t, os.WriteFile(file, files["benchmarks.json"], 0o600))
		g, err := readGuard(file, io.Discard)
		require.NoError(t, err)
		var out, log bytes.Buffer
		require.Equal(t, want, g.report(line{Bench: "b", Variant: "v", Unit: "ms", Ratio: &figure}, &out, &log))
		require.NotEmpty(t, out.String(), "it is printed all the same")
		if want == 1 {
			require.Contains(t, log.String(), "bench: b: v: the ratio is 1.3, and 1 is stored")
		}
	}
}

// The whole of it, on services of its own.
func TestRun_HoldsMeasurementsAgainstWhatIsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "stored.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"bench": "standin", "variant": "delayed exchange beside a durable classic queue", "unit": "msg/s", "of": "ratio", "figure": 1000}]`), 0o600))
	var out, log bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-rounds", "1", "-rows", "200", "-stored", file, "-docs", dir, "standin"}, &out, &log))
	require.Contains(t, log.String(), "and 1000 is stored: worse than 0.8 of that")
	require.NoFileExists(t, filepath.Join(dir, "benchmarks.md"), "a run that fails writes no page")
	lines, err := readLines(&out)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.Equal(t, 1, *lines[0].FlushAtCommit)
	require.Positive(t, lines[0].BufferPoolMB)
	require.NotEmpty(t, lines[0].Database)
	require.NotEmpty(t, lines[0].Broker)
}
