package demo_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killLimit is how long what a demo started may outlive it.
const killLimit = time.Minute

// TestDemo_LeavesNothingBehind ends a demo at awkward moments, each named by what it has said last.
func TestDemo_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said   string // wait for this line; empty: kill after a moment
		signal syscall.Signal
		args   []string
	}{
		"killed at once":                    {"", syscall.SIGKILL, nil},
		"killed with half of it started":    {"MariaDB listens", syscall.SIGKILL, nil},
		"killed while it migrates":          {"RabbitMQ 3", syscall.SIGKILL, nil},
		"killed while orders come in":       {"API listens", syscall.SIGKILL, nil},
		"killed while it kills the broker":  {"kill -9 to the broker", syscall.SIGKILL, []string{"--kill-broker"}},
		"stopped while orders come in":      {"API listens", syscall.SIGTERM, nil},
		"interrupted while all of it stays": {"all of it runs until", syscall.SIGINT, []string{"--keep", "--orders=5", "--timeout=1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			own := filepath.Join(dir, "duebox") // every process of this demo has the folder's name in its command or environment
			require.NoError(t, os.Link(program(t, ""), own))
			cmd := exec.CommandContext(t.Context(), own, append([]string{"demo"}, c.args...)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewReader(stderr)
			if c.said != "" {
				awaitLine(t, lines, c.said)
			} else {
				require.Eventually(t, func() bool { return len(filesOf(dir, own)) > 0 }, killLimit, time.Millisecond)
			}

			require.NoError(t, cmd.Process.Signal(c.signal))
			_, _ = io.Copy(io.Discard, lines)
			err = cmd.Wait()
			if c.signal == syscall.SIGINT && strings.Contains(c.said, "all of it") {
				require.NoError(t, err, "the check was done and found nothing")
			} else {
				require.Error(t, err)
			}
			var left []string
			require.Eventually(t, func() bool {
				left = slices.Concat(processesOf(dir), filesOf(dir, own))
				return len(left) == 0
			}, killLimit, 50*time.Millisecond, "left: %v", &left)
		})
	}
}

func awaitLine(t *testing.T, lines *bufio.Reader, part string) string {
	t.Helper()
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "it ended before it said %q", part)
		if strings.Contains(line, part) {
			return line
		}
	}
}

// processesOf lists the processes that have dir in their command line, environment or working folder.
func processesOf(dir string) []string {
	all, _ := filepath.Glob("/proc/[0-9]*")
	var found []string
	for _, proc := range all {
		if filepath.Base(proc) == strconv.Itoa(os.Getpid()) {
			continue
		}
		words, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // of a process that ends meanwhile: nothing
		env, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if strings.Contains(string(words)+string(env)+cwd, dir) {
			found = append(found, filepath.Base(proc)+" "+strings.ReplaceAll(string(words), "\x00", " "))
		}
	}
	return found
}

// filesOf lists what is in dir and the folders in it, but for one file.
func filesOf(dir, except string) []string {
	all, _ := filepath.Glob(filepath.Join(dir, "*"))
	deeper, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	return slices.DeleteFunc(slices.Concat(all, deeper), func(path string) bool { return path == except })
}
