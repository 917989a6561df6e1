package watched_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/watched"
)

func join(contents [][]byte) (string, error) {
	var all []string
	for _, c := range contents {
		if string(c) == "bad" {
			return "", errors.New("one is bad")
		}
		all = append(all, string(c))
	}
	return strings.Join(all, "+"), nil
}

// later lets a look at the files be over. It is called in a bubble.
func later() {
	time.Sleep(time.Second) //nolint:forbidigo // of the bubble's clock
}

func TestFiles_AreReadAnewWhenTheyChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	synctest.Test(t, func(t *testing.T) {
		write(a, "1")
		write(b, "2")
		var told []string
		f, err := watched.Open(join, func(err error) { told = append(told, err.Error()) }, a, b)
		require.NoError(t, err)
		require.Equal(t, "1+2", f.Get())

		write(b, "3")
		require.Equal(t, "1+2", f.Get(), "no more than one look a second")
		later()
		require.Equal(t, "1+3", f.Get())

		write(b, "bad")
		for range 3 {
			later()
			require.Equal(t, "1+3", f.Get(), "what was good stays")
		}
		require.Equal(t, []string{"one is bad"}, told, "each fault once")
		require.NoError(t, os.Remove(a))
		later()
		require.Equal(t, "1+3", f.Get())
		require.Len(t, told, 2)
		require.Contains(t, told[1], "no such file")

		// As Kubernetes exchanges what it mounts.
		write(b, "5")
		write(filepath.Join(dir, "new"), "4")
		require.NoError(t, os.Symlink("new", a))
		later()
		require.Equal(t, "4+5", f.Get())
		require.Len(t, told, 2)
		write(b, "bad")
		later()
		f.Get()
		require.Len(t, told, 3, "a fault that is back is told again")
	})
}

func TestOpen_FailsWhereThereIsNothingToKeep(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := watched.Open(join, nil, missing)
	require.ErrorContains(t, err, missing)
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(large, make([]byte, 1<<20+1), 0o600))
	_, err = watched.Open(join, nil, large)
	require.ErrorContains(t, err, "larger than 1 MiB")
}

// A pipe that nobody writes to, or a directory, is told at once.
func TestOpen_RefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, t.TempDir()} {
		opened := make(chan error, 1)
		go func() {
			_, err := watched.Open(join, nil, path)
			opened <- err
		}()
		select {
		case err := <-opened:
			require.EqualError(t, err, "read a file: read "+path+": it is no regular file")
		case <-time.After(10 * time.Second):
			t.Fatal("it waits for " + path)
		}
	}
}
