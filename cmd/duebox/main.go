// Command duebox is the one program of duebox: the API, the worker, and what an operator needs besides.
//
// Exit codes: 0 done; 1 it went wrong, or a check has found something; 2 it could not begin: wrong arguments or settings, or
// for demo and reconcile, no run to its end; 3 for outbox: there is no such message, it is not in a state for that, or it is protected.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command that args name and returns the exit code. The first SIGTERM or SIGINT ends its context, a second
// one the process.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "duebox: %s\n", plain(err))
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return cannotBegin // everything that a command returns is a failure; this is cobra's own: unknown flags and commands
}

// plain is err in words that do not begin with the package which has said so.
func plain(err error) string {
	text := err.Error()
	for _, prefix := range []string{"api: ", "outbox: ", "worker: ", "rabbitmq: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

const (
	wentWrong   = 1
	cannotBegin = 2
)

// failure is an error and the exit code that it means.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail gives err the exit code; nil stays nil.
func fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &failure{code, err}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "duebox",
		Short:         "Delayed messages for RabbitMQ that cannot get lost, and orders that close themselves",
		Long:          "Delayed messages for RabbitMQ that cannot get lost, and orders that close themselves.\nThe settings of api, worker, migrate and reconcile are environment variables; see the README.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newAPI(), newWorker(), newMigrate(), newReconcile(), newOutbox(), newRestored(), newDoctor(), newConfig(), newDemo(), newHealth(), newVersion())
	return root
}
