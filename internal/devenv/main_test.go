package devenv_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/duebox/duebox/internal/devenv"
)

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

// childVariable makes the test binary play another part.
const childVariable = "DUEBOX_DEVENV_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "owner":
		if err := ownServices(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "leak":
		go func() { select {} }()
		goleak.VerifyTestMain(m)
	default:
		goleak.VerifyTestMain(m)
	}
}

// ownServices starts both services in dir, says so and waits to be killed.
func ownServices(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := devenv.StartMariaDB(ctx, devenv.Config{Dir: dir, BufferPool: 16 << 20}); err != nil {
		return err
	}
	if _, err := devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Dir: dir, Plugin: devenv.ExchangeNone}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "started")
	select {}
}

// child is the test binary in another part.
func child(t *testing.T, part string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"="+part)
	return cmd
}

// processesOf lists the processes that work in dir or were given its name.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var found []string
	for _, proc := range all {
		// A process that ends meanwhile reads as empty.
		words, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		text := strings.ReplaceAll(string(words), "\x00", " ")
		if filepath.Base(proc) == fmt.Sprint(os.Getpid()) {
			continue
		}
		if strings.Contains(text+string(env)+cwd, dir) {
			found = append(found, filepath.Base(proc)+" "+text)
		}
	}
	return found
}

func TestLeakCheck_CatchesALeak(t *testing.T) {
	t.Parallel()
	out, err := child(t, "leak", "-test.run=^$").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "found unexpected goroutines")
}
