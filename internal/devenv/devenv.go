// Package devenv starts private MariaDB and RabbitMQ processes for the demo,
// the tests and the benchmarks.
//
// A service lives in a folder of its own, listens on 127.0.0.1 on ports below
// 32768 and shares nothing with a server that the machine already runs: not
// the data, not the ports, not the Erlang port mapper. It answers when Start
// has returned, can be stopped, killed and started again on the same port and
// data, and leaves no process and no file behind after Close, or when the
// program that owns it ends in any other way, SIGKILL included.
//
// It works as root and as an ordinary user, on Debian and Ubuntu, with the
// packages that scripts/setup.sh installs. It is for development: nothing here
// is meant to keep data that matters.
package devenv

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Config says where and how a MariaDB runs. The zero value is good.
type Config struct {
	// Dir is the folder in which the service makes its own; default
	// os.TempDir().
	Dir string
	// Log receives one line per step; default none. It is written by the
	// goroutine that calls the service's methods.
	Log io.Writer
	// BufferPool is innodb_buffer_pool_size in bytes; default 256 MiB.
	BufferPool int64
	// GeneralLog is the absolute path of a file to which the server appends
	// every statement; default none. It is outside the service's folder and
	// stays when the service is closed.
	GeneralLog string
	// Unflushed leaves it to the system when a commit reaches the disk: what is
	// committed outlives the server however that ends, and not the machine.
	// Default: with each commit.
	Unflushed bool
	// Arguments are more of the server's.
	Arguments []string
}

const (
	defaultBufferPool = 256 << 20

	startLimit = 2 * time.Minute       // of one start, if the caller's context has none
	stopLimit  = time.Minute           // of one clean stop, likewise
	pollPause  = 25 * time.Millisecond // between two looks at a service that starts
)

// MissingError says that a program which a service needs is not installed.
type MissingError struct {
	// Program is the name of what was looked for.
	Program string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("devenv: %s is not installed; run: sudo scripts/setup.sh", e.Program)
}

// program finds the first of paths that can be run. A path without a slash is
// looked up in PATH. The name is for the error.
func program(name string, paths ...string) (string, error) {
	for _, path := range paths {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", &MissingError{Program: name}
}

func say(log io.Writer, format string, args ...any) {
	if log != nil {
		fmt.Fprintf(log, format+"\n", args...)
	}
}

// baseEnv is the environment of every service: nothing of the caller's may
// reach it, or a variable meant for the machine's own broker would.
func baseEnv(home string) []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + home,
		// A MariaDB that starts deletes the temporary tables that it finds in
		// its folder for them, another server's too.
		"TMPDIR=" + home,
		"LANG=C.UTF-8",
		"TZ=" + os.Getenv("TZ"),
	}
}

func secret() string { return rand.Text() }
