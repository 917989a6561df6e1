// Package demo runs the whole system once, from orders over HTTP to effects in the database, and checks what came of it.
//
// It starts a MariaDB and a RabbitMQ of its own, and the API and the worker as processes of the same program, so that what
// it shows is what an installation does. The check reads the database with queries of its own and shares nothing with the
// product. Whatever way the demo ends, SIGKILL included, no process and no file is left behind.
//
// It never touches a database or broker that the environment names: it kills and counts what it finds.
package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrFound says that the run went through and the check found something wrong; the report names it.
var ErrFound = errors.New("the check found something wrong")

// Options says what is run. Required: Program, Stdout, Stderr.
type Options struct {
	// Orders is how many orders are placed. With an OrdersFile, 0 means all of its rows.
	Orders int
	// Timeout is how long a normal order may stay unpaid; a third of it for flash, twice for presale.
	Timeout time.Duration
	// OrdersFile holds orders to place, see readOrders. Empty: a mix that is built in.
	OrdersFile string
	// Rate is how many orders are placed in a second.
	Rate float64
	// KillBroker kills the broker (kill -9) when half of the orders are placed and half of Timeout, at least 4 s, has
	// passed, and starts it again.
	KillBroker bool
	// Keep leaves everything running after the check, until the context ends. What Run returns is the verdict of that check,
	// which counts orders that others have placed before it as wrong and knows nothing of those that come after it.
	Keep bool
	// JSON prints the result as one JSON object, as the last line of Stdout.
	JSON bool

	// Program is the duebox program whose api, worker and migrate are run.
	Program string
	// Dir is where the services make their folders; default os.TempDir().
	Dir string
	// Stdout receives the result and Stderr what happens until then. Terminal says that Stderr is one: then a bar shows how
	// far the run has come.
	Stdout, Stderr io.Writer
	Terminal       bool

	disturb func(context.Context, *sql.DB) error // tests make the broker deliver more than it should
}

// DefaultOrders is how many orders of the built-in mix are placed when nothing else is said.
const DefaultOrders = 200

func (o *Options) check() error {
	switch {
	case o.Orders < 0 || o.Orders > 1_000_000:
		return fmt.Errorf("orders: %d is not in 1 to 1000000", o.Orders)
	case o.Timeout < time.Second || o.Timeout > 24*time.Hour:
		return fmt.Errorf("timeout: %v is not in 1s to 24h", o.Timeout)
	case !(o.Rate >= 0.01 && o.Rate <= 10_000): // refuses NaN too
		return fmt.Errorf("rate: %v is not in 0.01 to 10000 orders a second", o.Rate)
	}
	return nil
}
