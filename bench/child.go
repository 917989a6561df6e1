package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

// childVariable makes this program another process of a benchmark, on the services of MYSQL_DSN and AMQP_URL.
const childVariable = "DUEBOX_BENCH_CHILD"

// strategyVariable is the strategy of a worker that is such a process. Default: plugin.
const strategyVariable = "DUEBOX_BENCH_STRATEGY"

// The values of childVariable.
const (
	roleWorker    = "worker"    // a whole worker, until its standard input ends
	roleRelay     = "relay"     // a relay with strategy plugin, until its standard input ends
	roleReconcile = "reconcile" // one pass, whose report and peak memory it prints
)

// child is another process of a benchmark.
type child struct {
	cmd       *exec.Cmd
	alive     io.Closer // its end tells a worker to stop
	out, said bytes.Buffer
}

func startChild(ctx context.Context, s services, role string, more ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self)} //nolint:gosec // this program
	c.cmd.Env = append(os.Environ(), childVariable+"="+role, "MYSQL_DSN="+s.dsn, "AMQP_URL="+s.amqp)
	c.cmd.Env = append(c.cmd.Env, more...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.alive, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

// end tells the process to stop, and waits until it has.
func (c *child) end() error {
	_ = c.alive.Close()
	return c.wait()
}

func (c *child) wait() error {
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("other process: %w: %s", err, c.said.String())
	}
	return nil
}

// childProcess is the other process.
func childProcess(role string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dsn, url := os.Getenv("MYSQL_DSN"), os.Getenv("AMQP_URL")
	var err error
	switch role {
	case roleWorker:
		err = workUntil(untilAlone(ctx), dsn, url)
	case roleRelay:
		err = relayUntil(untilAlone(ctx), dsn, url)
	case roleReconcile:
		err = reconcileOnce(ctx, dsn, url)
	default:
		err = fmt.Errorf("%s is %q", childVariable, role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// untilAlone returns a context that ends with ctx or the standard input.
func untilAlone(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}

func relayUntil(ctx context.Context, dsn, url string) error {
	led, err := openLedger(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = led.close() }()
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{})
	if err != nil {
		return err
	}
	owner := fmt.Sprintf("bench-%d", os.Getpid())
	return runRelay(ctx, store, url, rabbitmq.Plugin, rabbitmq.Quorum, owner, func(p outbox.Publisher) outbox.Publisher { return p })
}

func workUntil(ctx context.Context, dsn, url string) error {
	led, err := openLedger(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = led.close() }()
	nothing := func(context.Context, *gorm.DB, outbox.Delivery) error { return nil } // the guard's own write is measured
	w, err := worker.New(led.db, url, map[string]worker.Effect{topic: nothing}, worker.Config{
		HTTPAddr: "127.0.0.1:0", Namespace: namespace, Strategy: cmp.Or(rabbitmq.Strategy(os.Getenv(strategyVariable)), rabbitmq.Plugin), Horizon: horizon,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// passed is what the process of a pass prints.
type passed struct {
	Report outbox.Report
	Peak   int64 // bytes
}

func reconcileOnce(ctx context.Context, dsn, url string) error {
	led, err := openLedger(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = led.close() }()
	store, err := outbox.NewStore(led.db, outbox.StoreConfig{})
	if err != nil {
		return err
	}
	broker, err := rabbitmq.NewBroker(url, rabbitmq.Config{Namespace: namespace})
	if err != nil {
		return err
	}
	rec, err := outbox.NewReconciler(store, outbox.ReconcileConfig{Depth: broker.Depth})
	if err != nil {
		return err
	}
	report, err := rec.Run(ctx, outbox.Scope{})
	if err != nil {
		return err
	}
	peak, err := peakMemory(os.Getpid())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(passed{report, peak})
}

// peakMemory reads a running process's VmHWM, see proc(5).
func peakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}
