package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a process of the duebox program. It dies with the demo, also when that is killed.
type child struct {
	name string
	proc *os.Process
	done chan struct{} // closed when it has ended and all that it said was read
	err  error         // how it ended; valid after done
	tail tail
}

// start runs the program with exactly the given environment. Each line of its standard error is given to onLine, by
// one goroutine.
func start(program, name string, args, env []string, onLine func([]byte)) (*child, error) {
	c := &child{name: name, done: make(chan struct{})}
	started := make(chan error)
	go c.run(program, args, env, onLine, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *child) run(program string, args, env []string, onLine func([]byte), started chan<- error) {
	// The kernel kills the child when the thread that started it ends: this goroutine keeps its thread until the child is gone.
	runtime.LockOSThread()
	cmd := exec.Command(program, args...) //nolint:gosec,noctx // ourselves; it ends by stop and not with a context
	cmd.Env = env
	cmd.Dir = "/"
	// A group of its own: Ctrl-C in the terminal is ours to pass on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	c.proc = cmd.Process
	started <- err
	if err != nil {
		return
	}
	c.read(said, onLine)
	c.err = cmd.Wait()
	close(c.done)
}

func (c *child) read(r io.Reader, onLine func([]byte)) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 { // of a line that is longer than the buffer, each piece
			c.tail.add(line)
			if onLine != nil {
				onLine(line)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// stop asks the process to drain, waits for limit, then kills it. The error says if it did not end by itself with code 0.
func (c *child) stop(limit time.Duration) error {
	_ = c.proc.Signal(syscall.SIGTERM)
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-c.done:
		return c.ended()
	case <-late.C:
		_ = c.proc.Kill()
		<-c.done
		return fmt.Errorf("%s did not end within %v after SIGTERM", c.name, limit)
	}
}

// wait returns when the process has ended; it is killed when ctx ends first.
func (c *child) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.ended()
	case <-ctx.Done():
		_ = c.proc.Kill()
		<-c.done
		return context.Cause(ctx)
	}
}

func (c *child) ended() error {
	if c.err != nil {
		return fmt.Errorf("%s: %w; it said last:\n%s", c.name, c.err, c.tail.text())
	}
	return nil
}

// tail is the end of what a process said, without the lines of level DEBUG.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line []byte) {
	const most = 20
	if bytes.Contains(line, []byte(`"level":"DEBUG"`)) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == most {
		t.lines = t.lines[1:]
	}
	t.lines = append(t.lines, string(line))
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}
