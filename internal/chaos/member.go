package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/duebox/duebox/internal/child"
)

// member is one of the product's processes, over all its lives. When it ends and nobody has ended it, it is started again, as
// whatever runs it in an installation would do.
type member struct {
	name, program        string
	args, env            []string
	url                  string
	toDatabase, toBroker *link
	onLine               func([]byte)
	deaths               *deaths

	mu      sync.Mutex
	process *child.Process
	down    bool // we have ended it
	keeping sync.WaitGroup
}

// deaths are ends of processes that nobody has ended.
type deaths struct {
	mu   sync.Mutex
	told []string
}

func (d *deaths) add(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, what)
}

func (d *deaths) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

func (m *member) current() *child.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// start starts it, at first or after kill. It outlives ctx.
func (m *member) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = false
	return m.run(context.WithoutCancel(ctx))
}

// run is to be called with mu held.
func (m *member) run(ctx context.Context) error {
	p, err := child.Start(m.program, m.name, m.args, m.env, m.onLine)
	if err != nil {
		return err
	}
	m.process = p
	m.keeping.Go(func() { m.keep(ctx, p) })
	return nil
}

// keep starts the process again if it ends and we have not ended it. An end before it was ever ready is not held against it:
// what it needs may be away.
func (m *member) keep(ctx context.Context, p *child.Process) {
	ready := child.AwaitReady(ctx, p, m.url) == nil
	<-p.Done()
	if m.isDown() {
		return
	}
	if ready {
		m.deaths.add(fmt.Sprintf("%s: %v; it said last:\n%s", m.name, p.Ended(), p.Tail()))
	}
	pause := time.NewTimer(time.Second)
	defer pause.Stop()
	<-pause.C
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return
	}
	if err := m.run(ctx); err != nil {
		m.deaths.add(err.Error())
	}
}

func (m *member) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// kill is kill -9. It returns when the process is gone.
func (m *member) kill() {
	if p := m.putDown(); p != nil {
		p.Kill()
	}
	m.keeping.Wait()
}

// stop asks it to drain. The error says if it did not end by itself with code 0 within limit.
func (m *member) stop(limit time.Duration) error {
	p := m.putDown()
	if p == nil {
		return nil
	}
	defer m.keeping.Wait()
	return p.Stop(limit)
}

func (m *member) putDown() *child.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = true
	return m.process
}

// signal is for a process that runs; one that does not feels nothing.
func (m *member) signal(sig os.Signal) error {
	err := m.current().Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
