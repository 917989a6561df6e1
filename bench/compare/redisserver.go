package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/duebox/duebox/internal/child"
	"github.com/redis/go-redis/v9"
)

// redisServer is a private Redis with the settings that Redis itself has by default, snapshots included, and key expiry events.
type redisServer struct {
	program, dir, address string

	process *child.Process
}

func findRedis() (string, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redis is not installed (run scripts/setup.sh): %w", err)
	}
	return program, nil
}

func startRedis(ctx context.Context, program, dir string) (*redisServer, error) {
	address, err := child.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	r := &redisServer{program: program, dir: filepath.Join(dir, "redis"), address: address}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	return r, r.Start(ctx)
}

// Start starts it and waits until it answers.
func (r *redisServer) Start(ctx context.Context) error {
	host, port, err := net.SplitHostPort(r.address)
	if err != nil {
		return err
	}
	r.process, err = child.Start(r.program, "redis", []string{
		"--bind", host, "--port", port, "--dir", r.dir, "--databases", "32", "--notify-keyspace-events", "Ex", "--logfile", filepath.Join(r.dir, "redis.log"),
	}, os.Environ(), nil)
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: r.address})
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis does not answer: %w", errors.Join(err, context.Cause(ctx)))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends it as an operator does: it writes its snapshot.
func (r *redisServer) Stop(context.Context) error { return r.process.Stop(20 * time.Second) }

// Kill ends it with SIGKILL.
func (r *redisServer) Kill() error {
	r.process.Kill()
	<-r.process.Done()
	return nil
}

// Wipe kills it and deletes what it has on disk.
func (r *redisServer) Wipe() error {
	return errors.Join(r.Kill(), os.RemoveAll(r.dir), os.MkdirAll(r.dir, 0o700))
}

// memory is what Redis says that it uses, in bytes.
func (r *redisServer) memory(ctx context.Context) (float64, error) {
	text, err := r.info(ctx, "Memory", "used_memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

func (r *redisServer) version(ctx context.Context) (string, error) {
	return r.info(ctx, "Server", "redis_version")
}

func (r *redisServer) info(ctx context.Context, section, name string) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: r.address})
	defer func() { _ = client.Close() }()
	all, err := client.InfoMap(ctx, section).Result()
	return all[section][name], err
}
