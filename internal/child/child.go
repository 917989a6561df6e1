// Package child runs programs that must not outlive the one that starts them: they are killed with it, also when that is
// killed itself. It serves the demo, the chaos suite and the comparison, which run what they look at as processes.
package child

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

// Process is a running program. Its methods may be called from any goroutine.
type Process struct {
	name string
	proc *os.Process
	done chan struct{}
	err  error // how it ended; valid after done
	tail tail
}

// Start runs the program with exactly the given environment, and name in its errors. Each line of its standard error is
// given to onLine, by one goroutine; onLine may be nil and must not keep the line.
func Start(program, name string, args, env []string, onLine func([]byte)) (*Process, error) {
	c := &Process{name: name, done: make(chan struct{})}
	started := make(chan error)
	go c.run(program, args, env, onLine, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *Process) run(program string, args, env []string, onLine func([]byte), started chan<- error) {
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

func (c *Process) read(r io.Reader, onLine func([]byte)) {
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

// Name is what Start was given.
func (c *Process) Name() string { return c.name }

// PID is the id of the process, also when it has ended.
func (c *Process) PID() int { return c.proc.Pid }

// Done is closed when the process has ended and all that it said was read.
func (c *Process) Done() <-chan struct{} { return c.done }

// Signal sends sig. A process that has ended is an error.
func (c *Process) Signal(sig os.Signal) error { return c.proc.Signal(sig) }

// Kill is kill -9. It returns when the process is gone.
func (c *Process) Kill() {
	_ = c.proc.Kill()
	<-c.done
}

// Stop asks the process to drain, waits for limit, then kills it. The error says if it did not end by itself with code 0.
func (c *Process) Stop(limit time.Duration) error {
	_ = c.proc.Signal(syscall.SIGTERM)
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-c.done:
		return c.Ended()
	case <-late.C:
		c.Kill()
		return fmt.Errorf("%s did not end within %v after SIGTERM", c.name, limit)
	}
}

// Wait returns when the process has ended; it is killed when ctx ends first.
func (c *Process) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.Ended()
	case <-ctx.Done():
		c.Kill()
		return context.Cause(ctx)
	}
}

// Ended says how a process that is Done has ended: nil for code 0.
func (c *Process) Ended() error {
	if c.err != nil {
		return fmt.Errorf("%s: %w; it said last:\n%s", c.name, c.err, c.Tail())
	}
	return nil
}

// Tail is the end of what the process has said, without the lines of level DEBUG.
func (c *Process) Tail() string { return c.tail.text() }

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
