package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var errStillRunning = errors.New("had to be killed")

// process is one child of this program, leader of a session and a process
// group of its own. Its methods may be called from any goroutine.
type process struct {
	pid  int
	done chan struct{} // closed when the process has ended and is reaped
	err  error         // how it ended; to be read after done

	mu     sync.Mutex // while it is held, pid belongs to the process
	reaped bool
}

// start runs argv as a process of the service. Its output is appended to the
// file log; nothing else is inherited.
func (h *home) start(name, log string, env []string, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devenv: %w", err)
	}
	defer func() { _ = out.Close() }()

	pidFile := h.path("pids", name)
	//nolint:noctx // a service outlives the context of its start
	cmd := exec.Command("/bin/sh", append([]string{"-c", launch, pidFile}, argv...)...)
	cmd.Dir = h.dir
	cmd.Env = env
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("devenv: start %s: %w", name, err)
	}
	p := &process{pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		awaitExit(p.pid)
		// Until it is reaped, the number cannot belong to anybody else.
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_ = os.Remove(pidFile)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = cmd.Wait()
		p.reaped = true
		runtime.KeepAlive(h) // see home.alive
	}()
	return p, nil
}

// run runs argv to its end as a process of the service. When ctx ends first, it
// is killed with all that it started. An error holds the end of its output.
func (h *home) run(ctx context.Context, name string, env []string, argv ...string) error {
	log := h.path(name + ".log")
	p, err := h.start(name, log, env, argv...)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		err = p.err
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), p.kill())
	}
	if err != nil {
		return fmt.Errorf("devenv: %s: %w: %s", name, err, tail(log))
	}
	return nil
}

// awaitExit blocks until the child has ended and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig to the process, or to its whole group.
func (p *process) signal(sig syscall.Signal, group bool) error {
	if p == nil {
		return os.ErrProcessDone
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	target := p.pid
	if group {
		target = -p.pid
	}
	if err := syscall.Kill(target, sig); err != nil {
		return fmt.Errorf("devenv: signal %d: %w", target, err)
	}
	return nil
}

// kill ends the group at once and returns when it is gone. A process that does
// not run is no error.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL, true)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	<-p.done
	return nil
}

// stop asks the process to end and waits. When ctx ends first it kills the
// group and says so. A process that does not run is no error.
func (p *process) stop(ctx context.Context) error {
	err := p.signal(syscall.SIGTERM, false)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), errStillRunning, p.kill())
	}
}
