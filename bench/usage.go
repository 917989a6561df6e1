package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
)

// usage prints how the program is called.
func usage(flags *flag.FlagSet, out io.Writer) {
	fmt.Fprint(out, `Usage: bench [flags] [NAME...]

Measures duebox on private services and prints one JSON line per measurement; without a name, everything.

Names, and what each measures at the default sizes:
`)
	for _, name := range benchmarkNames() {
		fmt.Fprintf(out, "  %-14s %s\n", name, purposes()[name])
	}
	fmt.Fprint(out, "\nFlags, after the benchmarks that they are for:\n")
	flags.SetOutput(out)
	flags.PrintDefaults()
}

// benchmarkNames are the names that benchmarks can be chosen by, in the order in which they run.
func benchmarkNames() (names []string) {
	for _, b := range benchmarks() {
		if !slices.Contains(names, b.name) {
			names = append(names, b.name)
		}
	}
	return names
}

// purposes says what each benchmark measures, by name.
func purposes() map[string]string {
	return map[string]string{
		"relay":         "messages a second from the ledger to the broker, with each strategy and with 1, 2 and 4 processes, beside the AMQP client alone",
		"relay-direct":  "the same into a classic queue, with strategy hold",
		"close":         "orders a second that close when all are due at once, beside a bare transaction for each",
		"enqueue":       "an order's INSERT with Enqueue in its transaction, beside the INSERT alone, for 1, 4 and 16 writers",
		"enqueue-order": "placing an order with its message, beside placing it without, for 1, 4 and 16 writers",
		"place":         "POST /v1/orders, beside its transaction in bare SQL, for many products and for one",
		"standin":       "the stand-in for the delayed exchange, beside a durable classic queue",
		"memory":        "peak memory of a worker while ten million rows wait",
		"broker":        "memory of a broker while ten million rows wait in MySQL, beside one without them",
		"overview":      "how long it takes to read what the operator's first page shows while ten million rows wait",
		"flat":          "statements on ten million rows, beside the same on a hundred thousand",
		"idle":          "what a worker with nothing due asks of the database and the processor, and how soon a message due now is published",
		"recovery":      "how long until a hundred thousand messages in flight are published again after the broker and its disk are lost",
		"reconcile":     "a pass over a million published rows of which one in a hundred is lost: time and peak memory",
		"lateness":      "how late effects are committed, with each strategy, one by one and twenty thousand within a second, beside the exchange alone",
	}
}
