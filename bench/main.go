package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// options scales the benchmarks; the defaults of the flags are what the aims are meant for.
type options struct {
	rounds    int           // of each variant, interleaved
	rows      int           // messages of one round
	waiting   int           // rows that wait in the memory benchmark
	orders    int           // transactions of one round (enqueue, enqueue-order, place)
	held      int           // messages in flight in the recovery benchmark
	ahead     time.Duration // until the first of them is due
	idle      int           // messages of the lateness and the idle benchmark, one after the other
	lead      time.Duration // from when the ledger begins to be filled until the first of many messages is due, or may spend its tier
	closing   int           // orders of one round of the close benchmark
	burst     int           // and those that are due within a second
	published int           // rows of the reconcile benchmark, of which one in a hundred is lost
	few       int           // rows that wait in the idle benchmark, and with which many are compared in the flat one
	calls     int           // of each kind in a round of the flat benchmark
	quiet     time.Duration // one round of the idle benchmark
	log       io.Writer     // progress, for people
}

// benchmark is one of the measurements.
type benchmark struct {
	name     string
	exchange string // the delayed exchange that it needs, a constant of devenv, or noBroker; empty: whichever is there
	run      func(ctx context.Context, s services, o options) (line, error)
	runAll   func(ctx context.Context, s services, o options) ([]line, error) // instead, if it prints more than one line
	pool     int64                                                            // of the database in bytes; 0: that of devenv
}

func benchmarks() []benchmark {
	return []benchmark{
		{name: "relay", run: benchRelay(relaying{"relay", rabbitmq.Plugin, rabbitmq.Quorum, 1, 0.8})},
		{name: "relay", run: benchRelay(relaying{"relay", rabbitmq.Plugin, rabbitmq.Quorum, 2, 0.8})},
		{name: "relay", run: benchRelay(relaying{"relay", rabbitmq.Plugin, rabbitmq.Quorum, 4, 0.8})},
		{name: "relay", run: benchRelay(relaying{"relay", rabbitmq.Hold, rabbitmq.Quorum, 1, 0.6})},
		{name: "relay", run: benchRelay(relaying{"relay", rabbitmq.Tiers, rabbitmq.Quorum, 1, 0.6})},
		{name: "relay-direct", run: benchRelay(relaying{"relay-direct", rabbitmq.Hold, rabbitmq.Classic, 1, 0.8})},
		{name: "close", run: benchClose(rabbitmq.Plugin)},
		{name: "close", run: benchClose(rabbitmq.Hold)},
		{name: "enqueue", run: benchEnqueue(1), exchange: noBroker},
		{name: "enqueue", run: benchEnqueue(4), exchange: noBroker},
		{name: "enqueue", run: benchEnqueue(16), exchange: noBroker},
		{name: "enqueue-order", run: benchEnqueueOrder(1), exchange: noBroker},
		{name: "enqueue-order", run: benchEnqueueOrder(4), exchange: noBroker},
		{name: "enqueue-order", run: benchEnqueueOrder(16), exchange: noBroker},
		{name: "place", run: benchPlace("many products", products), exchange: noBroker},
		{name: "place", run: benchPlace("one hot product", 1), exchange: noBroker},
		{name: "standin", run: benchStandIn, exchange: devenv.ExchangeStandIn},
		{name: "memory", runAll: benchMemory},
		{name: "broker", runAll: benchBroker},
		{name: "flat", runAll: benchFlat, pool: largePool, exchange: devenv.ExchangeNone},
		{name: "overview", run: benchOverview, pool: largePool, exchange: noBroker},
		{name: "idle", runAll: benchIdle},
		{name: "recovery", run: benchRecovery},
		{name: "reconcile", run: benchReconcile},
		{name: "lateness", run: benchLateness(rabbitmq.Plugin, 25*time.Millisecond, 2*time.Second)},
		{name: "lateness", run: benchLateness(rabbitmq.Hold, 25*time.Millisecond, 2*time.Second)},
		{name: "lateness", run: benchLateness(rabbitmq.Tiers, 150*time.Millisecond, 3*time.Second)},
	}
}

func main() {
	if role := os.Getenv(childVariable); role != "" {
		os.Exit(childProcess(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, log io.Writer) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() {} // a wrong flag is not answered with two pages
	o := options{log: log}
	flags.IntVar(&o.rounds, "rounds", 5, "measure each variant `N` times")
	flags.IntVar(&o.rows, "rows", 50_000, "relay, relay-direct, standin: messages of one round; memory, broker: messages within the horizon")
	flags.IntVar(&o.waiting, "waiting", 10_000_000, "memory, broker, flat, overview: rows that wait in MySQL")
	flags.IntVar(&o.few, "few", 100_000, "idle: rows that wait beyond the horizon; flat: rows of the small ledger that the one with -waiting rows is compared with")
	flags.IntVar(&o.calls, "calls", 1000, "flat: calls of each kind in one round; overview: five times as many as its calls")
	flags.DurationVar(&o.quiet, "quiet", time.Minute, "idle: how long a worker with nothing to do is watched in one round")
	flags.IntVar(&o.orders, "orders", 4000, "enqueue, enqueue-order, place: transactions of one round")
	flags.IntVar(&o.held, "in-flight", 100_000, "recovery: messages that the broker holds when it dies")
	flags.DurationVar(&o.ahead, "ahead", 5*time.Minute, "recovery: how long after the ledger begins to be filled the first of the messages in flight is due")
	flags.IntVar(&o.idle, "idle", 400, "lateness, idle: messages that are sent one after the other, each alone")
	flags.IntVar(&o.closing, "closing", 20_000, "close: orders of one round, all due within a second")
	flags.IntVar(&o.burst, "burst", 20_000, "lateness, memory: messages that are due within a second")
	flags.DurationVar(&o.lead, "lead", 20*time.Second, "lateness, memory, close, relay with tiers: time to fill the ledger before many messages are due")
	flags.IntVar(&o.published, "published", 1_000_000, "reconcile: published rows, one in a hundred lost")
	stored := flags.String("stored", "", "fail if a measurement is worse than what is stored of it in `FILE`")
	docs := flags.String("docs", "", "write benchmarks.md, its plots and the stored figures in `DIR`")
	given := flags.String("lines", "", "with -docs: measure nothing, take the lines in `FILE`")
	profile := flags.String("profile", "", "write a CPU profile of this process to `FILE`")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		usage(flags, out)
		return 0
	} else if err != nil {
		fmt.Fprintln(log, "bench: -h tells what there is")
		return 2
	}
	chosen, err := choose(flags.Args())
	if err == nil && (o.rounds < 1 || o.rows < 1 || o.waiting < 1 || o.orders < 1 || o.held < 1 || o.idle < 1 || o.closing < 1 || o.burst < 1 || o.published < 100 || o.few < 1 || o.calls < turns || o.quiet <= 0 || o.ahead <= 0 || o.lead <= 0) {
		err = errors.New("-rounds, -rows, -waiting, -orders, -in-flight, -idle, -closing, -burst and -few must be at least 1, -published at least 100, -calls at least 10, -ahead, -lead and -quiet above 0")
	}
	if err == nil && *given != "" && *docs == "" {
		err = errors.New("-lines needs -docs")
	}
	var against guard
	if err == nil {
		against, err = readGuard(*stored, log)
	}
	if err != nil {
		fmt.Fprintln(log, "bench:", err)
		return 2
	}
	if *given != "" {
		return document(*docs, *given, nil, log)
	}
	stop, err := startProfile(*profile)
	if err != nil {
		fmt.Fprintln(log, "bench:", err)
		return 2
	}
	defer stop()
	code := 0
	var all []line
	sizes := sizesOf(flags)
	for _, b := range chosen {
		lines, err := b.measure(ctx, o)
		for i, l := range lines {
			l.Flags = sizes
			lines[i] = l
			code = max(code, against.report(l, out, log))
		}
		all = append(all, lines...)
		if err != nil {
			fmt.Fprintf(log, "bench: %s: %v\n", b.name, err)
			if code = 1; ctx.Err() != nil {
				return code
			}
		}
	}
	if *docs != "" && code == 0 { // a page of half a run would look like one of a whole
		return document(*docs, "", all, log)
	}
	return code
}

// sizesOf are the flags that were given, but for those that change no measurement.
func sizesOf(flags *flag.FlagSet) string {
	var given []string
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"stored", "docs", "lines", "profile"}, f.Name) {
			given = append(given, "-"+f.Name+" "+f.Value.String())
		}
	})
	return strings.Join(given, " ")
}

// document writes the page in dir, of the lines in a file or, without one, of those that are given, and returns the exit code.
func document(dir, file string, lines []line, log io.Writer) int {
	err := writeDocs(dir, file, lines)
	if err != nil {
		fmt.Fprintln(log, "bench: write the page:", err)
		return 1
	}
	return 0
}

// report prints the measurement and returns the exit code that it asks for.
func report(l line, out, log io.Writer) int {
	if err := l.write(out); err != nil {
		fmt.Fprintln(log, "bench:", err)
		return 1
	}
	if l.required && !l.Met {
		fmt.Fprintf(log, "bench: %s misses its aim, which is required\n", l.Bench)
		return 1
	}
	return 0
}

// measure starts the services, runs the benchmark and closes them.
func (b benchmark) measure(ctx context.Context, o options) (lines []line, err error) {
	s, err := startServices(ctx, b.exchange, b.pool, o.log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	run := b.runAll
	if run == nil {
		run = func(ctx context.Context, s services, o options) ([]line, error) {
			l, err := b.run(ctx, s, o)
			if err != nil {
				return nil, err
			}
			return []line{l}, nil
		}
	}
	set, err := s.settings(ctx)
	if err != nil {
		return nil, err
	}
	lines, err = run(ctx, s, o)
	for i := range lines {
		lines[i].settings = set
	}
	return lines, err
}

func choose(names []string) ([]benchmark, error) {
	all := benchmarks()
	if len(names) == 0 {
		return all, nil
	}
	known := benchmarkNames()
	var chosen []benchmark
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no benchmark %q; there are %s", name, strings.Join(known, ", "))
		}
		for _, b := range all {
			if b.name == name {
				chosen = append(chosen, b)
			}
		}
	}
	return chosen, nil
}

func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
