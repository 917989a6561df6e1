package chaos_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/chaos"
)

// TestChaos_KeepsEveryPromise is the suite's short form. CHAOS_SEED repeats the schedule of a run that failed; the
// long form is "make chaos".
func TestChaos_KeepsEveryPromise(t *testing.T) {
	t.Parallel()
	seed := 1 + rand.Uint64N(1_000_000)
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	logs := t.TempDir()
	var said bytes.Buffer
	report, err := chaos.Run(t.Context(), chaos.Options{
		Program: program(t), Seed: seed, For: 55 * time.Second, Rate: 6, Logs: logs, Out: &said,
	})
	if err == nil {
		require.NoError(t, report.Print(&said))
	}
	if err != nil || len(report.Violations) > 0 {
		t.Logf("seed %d\n%s", seed, said.String())
		for _, path := range logsIn(t, logs) {
			t.Logf("end of %s:\n%s", filepath.Base(path), tail(t, path))
		}
	}
	require.NoError(t, err, "seed %d", seed)
	require.Empty(t, report.Violations, "seed %d", seed)
	require.NotZero(t, report.Answers.Placed)
	require.NotZero(t, report.Lateness.Quiet.N, "nothing was due when nothing was wrong")
	t.Logf("\n%s", said.String())
}

func logsIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	return paths
}

// tail is the end of a log, without deliveries and requests that went well.
func tail(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var lines [][]byte
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"level":"DEBUG"`)) && !bytes.Contains(line, []byte(`"status":2`)) {
			lines = append(lines, line)
		}
	}
	const most = 40
	return string(bytes.Join(lines[max(0, len(lines)-most):], nil))
}
