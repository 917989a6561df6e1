package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/child"
	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// doomVariable makes the test binary a worker process that kills itself; it holds its doom.
const doomVariable = "DUEBOX_WORKER_DOOM"

// doom is a worker process and the step at which it dies.
type doom struct {
	DSN, URL, Namespace string
	Workers, Prefetch   int
	MaxAttempts         int
	step
	Nth int32 // time that it comes to the step
}

// step is something that a worker sends to the database or the broker, or gets from the broker.
type step struct {
	Begins []byte // how it looks on the wire
	When   string // before it is sent, sent (no answer was read), answered, or arrives
	Broker bool
	// InEffect: only on a database connection that has sent a guard.
	InEffect bool
}

const (
	before   = "before"
	sent     = "sent"
	answered = "answered"
	arrives  = "arrives"
)

// lethal is the payload of messages whose effect kills its process.
const lethal = "lethal"

// startDoomed starts the process of d.
func startDoomed(t *testing.T, d doom) (*child.Process, error) {
	t.Helper()
	text, err := json.Marshal(d)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	return child.Start(program, fmt.Sprintf("worker that dies %s %q", d.When, d.Begins), []string{"-test.run=^$"},
		append(os.Environ(), doomVariable+"="+string(text)), nil)
}

// wasKilled tells whether a process ended by SIGKILL.
func wasKilled(p *child.Process) bool {
	exit, ok := errors.AsType[*exec.ExitError](p.Ended())
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// doomed is the whole of such a process.
func doomed(text string) {
	var d doom
	err := json.Unmarshal([]byte(text), &d)
	if err == nil {
		err = d.work(context.Background())
	}
	fmt.Fprintln(os.Stderr, "ended alive:", err)
	os.Exit(1)
}

func (d *doom) work(ctx context.Context) error {
	passed := new(atomic.Int32)
	dsn, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		return err
	}
	network := dsn.Net
	dsn.Net = "doomed"
	mysql.RegisterDialContext("doomed", func(ctx context.Context, addr string) (net.Conn, error) {
		return d.dial(ctx, network, addr, !d.Broker, passed)
	})
	db, err := database.Open(ctx, dsn.FormatDSN())
	if err != nil {
		return err
	}
	amqpURL, err := d.relay(ctx, passed)
	if err != nil {
		return err
	}
	effect := func(ctx context.Context, tx *gorm.DB, delivery outbox.Delivery) error {
		if string(delivery.Payload) == lethal {
			die()
		}
		return written(ctx, tx, delivery)
	}
	w, err := worker.New(db, amqpURL, map[string]worker.Effect{topic: effect}, worker.Config{
		HTTPAddr: "127.0.0.1:0", Namespace: d.Namespace, Workers: d.Workers, Prefetch: d.Prefetch, MaxAttempts: d.MaxAttempts,
		ReconcileSchedule: "@yearly", AuditSchedule: "@yearly", Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// relay passes on what goes between this process and the broker, and returns the URL to use.
func (d *doom) relay(ctx context.Context, passed *atomic.Int32) (string, error) {
	broker, err := url.Parse(d.URL)
	if err != nil {
		return "", err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	target := broker.Host
	broker.Host = l.Addr().String()
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := d.dial(ctx, "tcp", target, d.Broker, passed)
			if err != nil {
				_ = here.Close()
				continue
			}
			go pipe(there, here)
			go pipe(here, there)
		}
	}()
	return broker.String(), nil
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	_ = to.Close()
	_ = from.Close()
}

func (d *doom) dial(ctx context.Context, network, addr string, fatal bool, passed *atomic.Int32) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || !fatal {
		return c, err
	}
	return &fatalConn{Conn: c, doom: d, passed: passed}, nil
}

// fatalConn kills the process at its step.
type fatalConn struct {
	net.Conn

	doom     *doom
	passed   *atomic.Int32
	inEffect bool
	last     bool // the step was sent; whoever reads its answer dies
}

// now tells whether p is the step's time that is fatal.
func (c *fatalConn) now(p []byte) bool {
	if bytes.Contains(p, guard) {
		c.inEffect = true
	}
	if !bytes.Contains(p, c.doom.Begins) || c.doom.InEffect && !c.inEffect {
		return false
	}
	return c.passed.Add(1) == c.doom.Nth
}

func (c *fatalConn) Write(p []byte) (int, error) {
	fatal := c.doom.When != arrives && c.now(p)
	if fatal && c.doom.When == before {
		die()
	}
	n, err := c.Conn.Write(p)
	if fatal && c.doom.When == sent {
		die()
	}
	c.last = c.last || fatal
	return n, err
}

func (c *fatalConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.last || c.doom.When == arrives && c.now(p[:n]) {
		die()
	}
	return n, err
}
