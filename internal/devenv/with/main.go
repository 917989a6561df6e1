// Command with runs another command beside a private MariaDB and RabbitMQ:
//
//	go run ./internal/devenv/with [--general-log FILE] -- COMMAND [ARGS...]
//
// The command finds them in MYSQL_DSN (root, empty database "test", may create
// others) and AMQP_URL. A service whose variable is set already is not started.
// Signals go to the command; when it has ended the services are closed, and
// with exits with the command's exit code, or 128 plus the signal that ended
// it. The MariaDB does not flush each commit: a test that ends a server starts
// its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/duebox/duebox/internal/devenv"
)

func main() {
	generalLog := flag.String("general-log", "", "append MariaDB's general log to `FILE`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: with [--general-log FILE] -- COMMAND [ARGS...]")
		os.Exit(2)
	}
	code, err := run(*generalLog, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(generalLog string, command []string) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	services, env, err := start(signals, generalLog)
	defer func() {
		for _, s := range services {
			err = errors.Join(err, s.Close())
		}
		if err != nil && code == 0 {
			code = 1
		}
	}()
	if err != nil {
		return 1, err
	}
	return execute(signals, append(os.Environ(), env...), command)
}

type closer interface{ Close() error }

// start starts what the environment does not name. A signal gives it up.
func start(signals <-chan os.Signal, generalLog string) (services []closer, env []string, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%v while the services were starting", s))
		case <-ctx.Done():
		}
	}()
	for _, name := range []string{"MYSQL_DSN", "AMQP_URL"} {
		if os.Getenv(name) != "" {
			fmt.Fprintf(os.Stderr, "%s is set: what it names is used, and no server is started\n", name)
		}
	}
	if os.Getenv("MYSQL_DSN") == "" {
		if generalLog != "" {
			if generalLog, err = filepath.Abs(generalLog); err != nil {
				return services, env, err
			}
		}
		db, err := devenv.StartMariaDB(ctx, devenv.Config{Log: os.Stderr, GeneralLog: generalLog, Unflushed: true})
		if err != nil {
			return services, env, err
		}
		services = append(services, db)
		env = append(env, "MYSQL_DSN="+db.DSN("test"))
	}
	if os.Getenv("AMQP_URL") == "" {
		broker, err := devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Log: os.Stderr})
		if err != nil {
			return services, env, err
		}
		services = append(services, broker)
		env = append(env, "AMQP_URL="+broker.URL())
	}
	return services, env, nil
}

// execute runs the command in a process group of its own, so that a signal
// typed at the terminal reaches it once, through us.
func execute(signals <-chan os.Signal, env, command []string) (int, error) {
	//nolint:noctx // signals end it, as they would without us
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("with: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if number, ok := s.(syscall.Signal); ok {
				_ = syscall.Kill(-cmd.Process.Pid, number)
			}
		case err := <-ended:
			return exitCode(err)
		}
	}
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
