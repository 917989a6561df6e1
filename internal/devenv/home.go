package devenv

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// keeper is what ends a service when its owner cannot. It makes the folder, so
// that there is none without a keeper, and reads a pipe whose only writer is
// the owning process, so that end of file means "closed" or "died", SIGKILL
// included. Every process of the service has written its group
// into pids before it became the service; the rename makes that final: who
// comes later finds no folder to write to, and ends by itself.
const keeper = `
trap '' PIPE
umask 077
mkdir "$1" "$1/pids" || exit 1
echo made
exec >/dev/null 2>&1
cat >/dev/null
mv "$1/pids" "$1/ended"
for file in "$1"/ended/*; do
	[ -e "$file" ] || continue
	tries=0
	until [ -s "$file" ] || [ "$tries" -ge 100 ]; do
		tries=$((tries + 1))
		sleep 0.01
	done
	read -r pid <"$file" && kill -s KILL -- "-$pid"
done
tries=0
until rm -rf "$1" && [ ! -e "$1" ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ] || exit 1
	sleep 0.1
done
`

// launch is how every process of a service begins.
const launch = `echo $$ >"$0" && exec "$@"`

const closeLimit = 20 * time.Second

// home is the folder of one service together with the keeper that removes it.
type home struct {
	dir    string
	keeper *exec.Cmd
	// alive is the pipe's write end. It is opened close-on-exec and no child
	// inherits it. The runtime would close it when home is unreachable, so
	// the goroutine that waits for a process holds home.
	alive *os.File

	closing sync.Once
	closed  error
}

func newHome(parent, name string) (*home, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, fmt.Errorf("devenv: %w", err)
	}
	h := &home{dir: filepath.Join(parent, "duebox-"+name+"-"+strings.ToLower(rand.Text()[:12]))}
	if err := h.keep(); err != nil {
		return nil, err
	}
	return h, nil
}

// keep starts the keeper and returns when the folder is there.
func (h *home) keep() error {
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	defer func() { _ = read.Close() }()
	//nolint:noctx // it ends with the pipe, not with whoever asked for a start
	h.keeper = exec.Command("/bin/sh", "-c", keeper, "duebox-keeper", h.dir)
	h.keeper.Dir = "/"
	h.keeper.Env = baseEnv("/")
	h.keeper.Stdin = read
	said, say, err := os.Pipe()
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("devenv: %w", err)
	}
	defer func() { _ = said.Close() }()
	h.keeper.Stdout, h.keeper.Stderr = say, say
	// A session of its own: Ctrl-C in the terminal must not end the keeper.
	h.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = h.keeper.Start()
	_ = say.Close()
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("devenv: start keeper: %w", err)
	}
	if line, _ := bufio.NewReader(said).ReadString('\n'); line != "made\n" {
		_ = write.Close()
		_ = h.keeper.Wait()
		return fmt.Errorf("devenv: make %s: %s", h.dir, strings.TrimSpace(line))
	}
	h.alive = write
	return nil
}

func (h *home) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

// close lets the keeper kill what still runs and remove the folder, and waits
// for it. More calls return the first one's result.
func (h *home) close() error {
	h.closing.Do(func() {
		_ = h.alive.Close()
		limit := time.AfterFunc(closeLimit, func() { _ = h.keeper.Process.Kill() })
		defer limit.Stop()
		if err := h.keeper.Wait(); err != nil {
			h.closed = fmt.Errorf("devenv: remove %s: %w", h.dir, err)
		}
	})
	return h.closed
}

// tail is the end of a log, for an error message.
func tail(path string) string {
	const limit = 2000
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "(no log)"
	}
	if err != nil {
		return err.Error()
	}
	if len(data) > limit {
		data = data[len(data)-limit:]
	}
	return string(bytes.TrimSpace(data))
}
