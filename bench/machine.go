package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// machine is what figures depend on of where they were measured.
type machine struct {
	cpu    string
	cores  int
	memory int64 // bytes
	golang string
}

func thisMachine() (m machine, err error) {
	m = machine{cores: runtime.NumCPU(), golang: strings.TrimPrefix(runtime.Version(), "go")}
	if m.cpu, err = fieldOf("/proc/cpuinfo", "model name"); err != nil {
		m.cpu = runtime.GOARCH // some processors have no such name there
	}
	total, err := fieldOf("/proc/meminfo", "MemTotal")
	if err != nil {
		return m, err
	}
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(total, " kB"), 10, 64)
	m.memory = kilobytes << 10
	return m, err
}

// fieldOf reads the first value with that name from a file of lines "name: value".
func fieldOf(file, name string) (string, error) {
	f, err := os.Open(file) //nolint:gosec // of /proc
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return field(f, file, name)
}

func field(r io.Reader, file, name string) (string, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", errors.Join(lines.Err(), fmt.Errorf("%s has no %s", file, name))
}

// settings is how the services were set up that a benchmark ran on. They are in each of its lines.
type settings struct {
	Database      string  `json:"database,omitempty"` // its version
	Broker        string  `json:"broker,omitempty"`   // its version; empty without one
	BufferPoolMB  float64 `json:"buffer_pool_mb,omitempty"`
	FlushAtCommit *int    `json:"flush_log_at_commit,omitempty"`
}

func (s services) settings(ctx context.Context) (set settings, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return settings{}, err
	}
	var size int64
	err = led.sql.QueryRowContext(ctx, "SELECT VERSION(), @@innodb_buffer_pool_size, @@innodb_flush_log_at_trx_commit").Scan(&set.Database, &size, &set.FlushAtCommit)
	if err := errors.Join(err, led.close()); err != nil {
		return settings{}, err
	}
	set.BufferPoolMB = float64(size) / mebi
	if s.amqp == "" { // a benchmark without a broker
		return set, nil
	}
	err = withConnection(ctx, s.amqp, func(conn *amqp.Connection) error {
		set.Broker = fmt.Sprint(conn.Properties["version"])
		return nil
	})
	return set, err
}
