package check_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// units are those of deploy/systemd: file name to its settings, each with all its values in their order.
func units(t *testing.T) map[string]map[string][]string {
	t.Helper()
	files, err := filepath.Glob(root + "/deploy/systemd/duebox-*")
	require.NoError(t, err)
	all := map[string]map[string][]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		unit := map[string][]string{}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
				unit[name] = append(unit[name], value)
			}
		}
		all[filepath.Base(file)] = unit
	}
	return all
}

// settings are the lines of a file NAME=VALUE.
func settings(t *testing.T, file string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(read(t, file)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			all[name] = value
		}
	}
	return all
}

func TestSystemd_ProcessesStartWithWhatTheyAreGiven(t *testing.T) {
	t.Parallel()
	shared := settings(t, "deploy/systemd/settings.env")
	for name, unit := range units(t) {
		if strings.HasSuffix(name, ".timer") {
			continue
		}
		require.Len(t, unit["ExecStart"], 1, name)
		words := strings.Fields(unit["ExecStart"][0])
		require.Equal(t, "/usr/bin/duebox", words[0], name)
		understood(t, words[1:]...)

		given := map[string]bool{}
		for _, credential := range unit["LoadCredential"] {
			id, file, _ := strings.Cut(credential, ":")
			require.Equal(t, "/etc/duebox", filepath.Dir(file), name)
			given[id] = true
		}
		vars := map[string]string{}
		for _, assigned := range unit["Environment"] {
			variable, value, _ := strings.Cut(assigned, "=")
			vars[variable] = value
			if strings.HasSuffix(variable, "_FILE") {
				id := strings.TrimPrefix(value, "%d/")
				require.True(t, given[id], "%s: %s is no credential of the unit", name, id)
				delete(given, id)
			}
		}
		require.Empty(t, given, "%s: credentials that nobody reads", name)
		fits(t, name, vars, needs(words[1])...)
		if unit["EnvironmentFile"] == nil {
			continue
		}
		require.Equal(t, []string{"-/etc/duebox/settings.env"}, unit["EnvironmentFile"], name)
		maps.Copy(vars, shared)
		fits(t, name, vars, needs(words[1])...)
		vars["HTTP_ADDR"], vars["WORKER_HTTP_ADDR"] = ":8080", ":9090" // as soon as somebody opens them
		fits(t, name, vars, needs(words[1])...)
	}
}

func TestSystemd_VerifiesTheUnits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for name := range units(t) {
		text := strings.ReplaceAll(read(t, "deploy/systemd/"+name), "/usr/bin/duebox", program)
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		args = append(args, file)
	}
	output, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
	require.NoError(t, err, string(output))
	require.Empty(t, string(output))

	for name := range units(t) {
		if strings.HasSuffix(name, ".timer") {
			continue
		}
		const most = "20" // of 100: how exposed a unit may be
		output, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=yes", "--threshold="+most, filepath.Join(dir, name)).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, output)
	}
}

func TestSystemd_ProcessesMayFinishWhatTheyAreAt(t *testing.T) {
	t.Parallel()
	drain, err := time.ParseDuration(settings(t, "deploy/systemd/settings.env")["DRAIN_TIMEOUT"])
	require.NoError(t, err)
	for _, name := range []string{"duebox-api.service", "duebox-worker.service"} {
		stop, err := time.ParseDuration(units(t)[name]["TimeoutStopSec"][0] + "s")
		require.NoError(t, err)
		require.Greater(t, stop, drain+5*time.Second, name)
	}
}
