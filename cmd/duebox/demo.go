package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/duebox/duebox/internal/demo"
)

func newDemo() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole system once on private services, and check what came of it",
		Long: `Run the whole system once on private services, and check what came of it.

A MariaDB and a RabbitMQ of its own are started, the API and the worker beside them; orders are placed over HTTP and some of
them paid; when all is over the database is checked. Nothing is left behind.

Exit codes: 0 all is well, 1 the check has found something wrong, 2 it could not run to its end.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Orders < 1 && (c.Flags().Changed("orders") || o.OrdersFile == "") {
				return fail(cannotBegin, fmt.Errorf("--orders: is %d, want 1 or more", o.Orders))
			}
			if !c.Flags().Changed("orders") && o.OrdersFile != "" {
				o.Orders = 0 // all of them
			}
			program, err := os.Executable()
			if err != nil {
				return fail(cannotBegin, err)
			}
			o.Program, o.Stdout, o.Stderr = program, c.OutOrStdout(), c.ErrOrStderr()
			o.Terminal = isatty.IsTerminal(os.Stderr.Fd())
			err = demo.Run(c.Context(), o)
			if errors.Is(err, demo.ErrFound) {
				return fail(wentWrong, err)
			}
			return fail(cannotBegin, err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Orders, "orders", demo.DefaultOrders, "how many orders to place; with --orders-file, all of it unless given")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long a normal order may stay unpaid; flash a third, presale twice that")
	f.StringVar(&o.OrdersFile, "orders-file", "", "CSV file of real orders to place: order,placed_at,paid_after_s,items")
	f.Float64Var(&o.Rate, "rate", 100, "orders to place in a second")
	f.BoolVar(&o.KillBroker, "kill-broker", false, "kill -9 the broker when half of the orders are placed and half of --timeout, at least 4s, has passed; and start it again")
	f.BoolVar(&o.Keep, "keep", false, "leave everything running after the check and print its verdict and the URLs; orders of your own that you place before that make it fail")
	f.BoolVar(&o.JSON, "json", false, "print the result as one JSON object, as the last line")
	return c
}
