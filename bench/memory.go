package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/duebox/duebox/worker"
)

const (
	workerVariable = "DUEBOX_BENCH_WORKER" // makes this program a worker on the services of MYSQL_DSN and AMQP_URL
	mebi           = 1 << 20
	farAway        = 48 * time.Hour
)

// benchMemory measures the most memory that a worker in a process of its own ever had resident, with many rows waiting for
// days and some to be handed over at once.
func benchMemory(ctx context.Context, s services, o options) (l line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return line{}, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	near := min(o.rows, max(1, o.waiting/10))
	if err := led.fill(ctx, o.waiting-near, farAway); err != nil {
		return line{}, err
	}
	var peaks []float64
	for range o.rounds {
		if err := emptyExchange(ctx, s.amqp); err != nil {
			return line{}, err
		}
		if err := led.fill(ctx, near, dueIn); err != nil {
			return line{}, err
		}
		peak, err := workerPeak(ctx, s, led)
		if err != nil {
			return line{}, err
		}
		peaks = append(peaks, float64(peak)/mebi)
	}
	l = alone("memory", fmt.Sprintf("peak of a worker process, %d rows waiting, %d of them handed over", o.waiting, near), "MiB", peaks)
	l.Exchange = s.exchange
	l.Aim = 100
	l.Met = l.Max < l.Aim
	return l, nil
}

// workerPeak runs a worker process until it has settled everything within its horizon, and returns its peak resident memory
// in bytes.
func workerPeak(ctx context.Context, s services, led *ledger) (peak int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the worker was too slow"))
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, self) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), workerVariable+"=1", "MYSQL_DSN="+s.dsn, "AMQP_URL="+s.amqp)
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	alive, err := cmd.StdinPipe() // its end tells the process to stop
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = awaitSettled(ctx, led)
	if err == nil {
		peak, err = peakMemory(cmd.Process.Pid)
	}
	_ = alive.Close()
	if waited := cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("worker process: %w: %s", waited, said.String()))
	}
	return peak, err
}

func awaitSettled(ctx context.Context, led *ledger) error {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := led.count(ctx, "state = 'scheduled' AND available_at < UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", horizon.Microseconds())
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d rows are not settled: %w", left, context.Cause(ctx))
		}
	}
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

// workerProcess is the other process: a whole worker until its standard input ends.
func workerProcess() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	if err := workUntil(ctx, os.Getenv("MYSQL_DSN"), os.Getenv("AMQP_URL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func workUntil(ctx context.Context, dsn, url string) error {
	db, err := database.Open(ctx, dsn)
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	none := func(context.Context, *gorm.DB, outbox.Delivery) error {
		return errors.New("nothing is due during a measurement")
	}
	w, err := worker.New(db, url, map[string]worker.Effect{topic: none}, worker.Config{
		HTTPAddr: "127.0.0.1:0", Namespace: namespace, Strategy: rabbitmq.Plugin, Horizon: horizon,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
