package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1) //nolint:gocritic // the context's signals end with the process
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	if text := os.Getenv(settingsVariable); text != "" {
		return runChild(ctx, text)
	}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	fast := flags.Bool("fast", false, "2,000 orders, shorter times, and of the timeline: "+strings.Join(fastPhases(), ", ")+"; what other flags ask for beyond 2,000 orders, 300 alone and 2,000 waiting is lowered to that")
	only := flags.String("only", "", "contenders, with commas between them; default all")
	parts := flags.String("phases", "", "parts of the timeline, with commas between them; default all, with -fast four")
	docs := flags.String("docs", "", "write comparison.md, comparison.json and plots into this `DIR`; default: comparison.json to standard output")
	orders := flags.Int("orders", 20_000, "orders of each contender")
	quiet := flags.Int("quiet", 2000, "orders of each contender in its run alone; 0: no such run")
	waiting := flags.Int("waiting", 20_000, "orders that wait while memory is measured")
	lines := flags.String("lines", "", "measure nothing, take the results of this `FILE`, a comparison.json")
	flags.SetOutput(log)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("arguments that are no flags: %s", strings.Join(flags.Args(), " "))
	case *orders < 1 || *waiting < 1 || *quiet < 0:
		return fmt.Errorf("-orders %d, -waiting %d and -quiet %d: there is at least one order, but for -quiet", *orders, *waiting, *quiet)
	}
	var found results
	if *lines != "" {
		if *docs == "" || *only != "" || *parts != "" {
			return errors.New("-lines goes with -docs, and with nothing that is measured")
		}
		var err error
		if found, err = read(*lines); err != nil {
			return err
		}
	} else {
		c := comparison{fast: *fast, orders: *orders, quiet: *quiet, waiting: *waiting, log: log}
		if *fast {
			c.phases = fastPhases()
			c.orders, c.quiet, c.waiting = min(c.orders, 2000), min(c.quiet, 300), min(c.waiting, 2000)
		}
		if *parts != "" {
			c.phases = strings.Split(*parts, ",")
		}
		var err error
		if err = known("-phases", c.phases, phaseNames()); err != nil {
			return err
		}
		if c.entries, err = chosen(*only); err != nil {
			return err
		}
		if err = probe(*docs); err != nil { // before an hour has passed
			return err
		}
		found, err = c.run(ctx)
		found.Arguments = args
		if err != nil {
			return errors.Join(err, write(out, found)) // what there is of an hour
		}
	}
	if *docs == "" {
		return errors.Join(write(out, found), found.failure())
	}
	files, err := report(found)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := write(&text, found); err != nil {
		return err
	}
	files["comparison.json"] = text.Bytes()
	if err := probe(*docs); err != nil {
		return err
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(*docs, name), text, 0o644)) //nolint:gosec // a part of the repository
	}
	return errors.Join(err, found.failure())
}

// probe makes the folder that results go into, and tries to write there.
func probe(docs string) error {
	if docs == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(docs, plots), 0o755); err != nil { //nolint:gosec // a part of the repository
		return err
	}
	for _, dir := range []string{docs, filepath.Join(docs, plots)} {
		f, err := os.CreateTemp(dir, ".probe")
		if err != nil {
			return err
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return err
		}
	}
	return nil
}

func write(out io.Writer, found results) error {
	text, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// failure is what kept a comparison from being whole.
func (r results) failure() error {
	if len(r.Failed) == 0 {
		return nil
	}
	return errors.New("not all was done: " + strings.Join(r.Failed, "; "))
}

// check finds what cannot have been written by a comparison that has run.
func (r results) check() error {
	for name, byPhase := range r.Together {
		if _, err := find(name); err != nil {
			return err
		}
		for _, phase := range append([]string{""}, r.Phases...) {
			if _, ok := byPhase[phase]; !ok {
				return fmt.Errorf("%s has no phase %q", name, phase)
			}
		}
		if _, ok := r.Alone[name]; !ok && r.Quiet > 0 {
			return fmt.Errorf("%s has not run alone", name)
		}
	}
	if err := known("phase", r.Phases, phaseNames()); err != nil {
		return err
	}
	if len(r.Together) == 0 || r.Orders < 1 || r.Waiting < 1 {
		return errors.New("it is not complete")
	}
	return nil
}

func read(file string) (found results, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own
	if err != nil {
		return found, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := errors.Join(in.Decode(&found), found.check()); err != nil {
		return found, fmt.Errorf("-lines %s: %w", file, err)
	}
	return found, nil
}

// chosen are the contenders with these names, with commas between them; empty: all.
func chosen(only string) ([]entry, error) {
	all := entries()
	if only == "" {
		return all, nil
	}
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.name
	}
	wanted := strings.Split(only, ",")
	return slices.DeleteFunc(all, func(e entry) bool { return !slices.Contains(wanted, e.name) }), known("-only", wanted, names)
}

func known(flag string, wanted, names []string) error {
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s: there is no %q, but %s", flag, name, strings.Join(names, ", "))
		}
	}
	return nil
}

// comparison is what is to be done.
type comparison struct {
	entries                []entry
	fast                   bool
	phases                 []string // empty: all
	orders, quiet, waiting int
	log                    io.Writer

	services *services
	number   int // of Redis' databases
}

// results are what was measured, by the names of contenders.
type results struct {
	Fast          bool
	Orders, Quiet int
	Waiting       int
	Phases        []string
	Arguments     []string
	Exchange      string
	Versions      []string // of servers and libraries
	Machine       string
	Alone         map[string]alone
	Together      map[string]map[string]tally // by contender and phase
	Conserved     map[string]bool
	Lines         map[string]int
	Minutes       float64
	Failed        []string // what could not be done: faults, and orders that could not be placed
}

// alone is what was measured of a contender while no other ran.
type alone struct {
	Tally                  tally
	IdlePerS, IdleRowsPerS float64 // statements, and rows read, while nothing waits, beside Quiet finished orders
	BusyPerS               float64 // statements, while orders are placed, paid and closed
	PerOrder, RowsPerOrder float64 // of an order from placing to its end, beyond what is idle
	// bytes more, for each 100,000 orders that wait; of processes what is live on their heaps, of the database its files, orders included
	Broker, Redis, Process, Database float64
}

func (c *comparison) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.log, "%s "+format+"\n", append([]any{time.Now().UTC().Format("15:04:05")}, args...)...)
}

func (c *comparison) run(ctx context.Context) (found results, err error) {
	began := time.Now()
	found = results{
		Fast: c.fast, Orders: c.orders, Quiet: c.quiet, Waiting: c.waiting,
		Alone: map[string]alone{}, Together: map[string]map[string]tally{}, Conserved: map[string]bool{}, Lines: map[string]int{},
	}
	c.services, err = startServices(ctx, c.log)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, c.services.Close()) }()
	found.Exchange = c.services.amqp.Exchange()
	if found.Versions, err = c.services.versions(ctx); err != nil {
		return found, err
	}
	if found.Machine, err = machine(); err != nil {
		return found, err
	}
	for _, e := range c.entries {
		if found.Lines[e.name], err = linesOf(e.files); err != nil {
			return found, err
		}
		if c.quiet == 0 {
			continue
		}
		if found.Alone[e.name], err = c.alone(ctx, e); err != nil {
			return found, fmt.Errorf("%s alone: %w", e.name, err)
		}
	}
	err = c.together(ctx, &found)
	found.Minutes = time.Since(began).Minutes()
	return found, err
}

// team makes and starts a contender in a new place.
func (c *comparison) team(ctx context.Context, e entry, run string, timeouts map[string]time.Duration) (*team, error) {
	c.number++
	t, err := newTeam(ctx, c.services, e, run, c.number%32, timeouts)
	if err != nil {
		return nil, err
	}
	return t, t.Start(ctx)
}

// alone measures what a fault would spoil.
func (c *comparison) alone(ctx context.Context, e entry) (a alone, err error) {
	if a.Tally, err = c.quietRun(ctx, e, &a); err != nil {
		return a, err
	}
	return a, c.memory(ctx, e, &a)
}

func (c *comparison) quietRun(ctx context.Context, e entry, a *alone) (t tally, err error) {
	timeouts := quietTimeouts(c.fast)
	window, idle := quietWindow(c.fast), 10*time.Second
	if c.fast {
		idle = 3 * time.Second
	}
	own, err := c.team(ctx, e, "quiet", timeouts)
	if err != nil {
		return t, err
	}
	defer own.Stop()
	db, err := own.open()
	if err != nil {
		return t, err
	}
	defer func() { _ = db.Close() }()
	if err := sleepUntil(ctx, time.Now().Add(2*time.Second)); err != nil {
		return t, err
	}
	before, err := used(ctx, db, own.instance)
	if err != nil {
		return t, err
	}
	f := &field{services: c.services, teams: []*team{own}, fast: c.fast, seed: seed, say: c.say}
	started := time.Now()
	if err := f.run(ctx, phase{name: "quiet", title: "alone", orders: c.quiet, window: window}, timeouts, 5*time.Second); err != nil {
		return t, err
	}
	worked, err := used(ctx, db, own.instance)
	if err != nil {
		return t, err
	}
	busy := time.Since(started).Seconds()
	if err := sleepUntil(ctx, time.Now().Add(idle)); err != nil {
		return t, err
	}
	rested, err := used(ctx, db, own.instance)
	if err != nil {
		return t, err
	}
	calm := rested.minus(worked)
	a.IdlePerS, a.IdleRowsPerS = calm.Statements/idle.Seconds(), calm.Rows/idle.Seconds()
	spent := worked.minus(before)
	a.BusyPerS = spent.Statements / busy
	spent = spent.minus(usage{a.IdlePerS * busy, 0})
	a.PerOrder, a.RowsPerOrder = spent.Statements/float64(c.quiet), spent.Rows/float64(c.quiet)
	t, err = count(ctx, db, "quiet", time.Now())
	c.say("%s alone: p50 %v, p99 %v, max %v, never %d", e.name, t.P50, t.P99, t.Max, t.Never)
	return t, err
}

// quietWindow is how long orders are placed of a contender alone.
func quietWindow(fast bool) time.Duration {
	if fast {
		return 5 * time.Second
	}
	return 20 * time.Second
}

const seed = 7

// memory has orders wait for an hour, and looks at what that takes beyond what was taken before.
func (c *comparison) memory(ctx context.Context, e entry, a *alone) error {
	hour := map[string]time.Duration{"normal": time.Hour}
	own, err := c.team(ctx, e, "wait", hour)
	if err != nil {
		return err
	}
	defer own.Stop()
	const warm = 500 // orders, after which connections and buffers are there
	sales := make([]sale, warm+c.waiting)
	for i := range sales {
		sales[i].order = order{No: fmt.Sprintf("wait-%05d", i), Phase: "wait", Kind: "normal", SKU: i % products, Quantity: 1, Timeout: time.Hour}
		sales[i].at = time.Millisecond * time.Duration(i%c.waiting) // no more at once than are placed in time
	}
	client := newClient(own)
	var after [4]float64
	before := after
	for _, part := range [][]sale{sales[:warm], sales[warm:]} {
		if err := client.sell(ctx, time.Now(), part); err != nil {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(3*time.Second)); err != nil {
			return err
		}
		before = after
		if after, err = c.held(ctx, own); err != nil {
			return err
		}
	}
	share := 100_000 / float64(c.waiting)
	a.Broker, a.Redis, a.Process, a.Database = share*(after[0]-before[0]), share*(after[1]-before[1]), share*(after[2]-before[2]), share*(after[3]-before[3])
	c.say("%s with %d waiting: broker %.0f, Redis %.0f, processes %.0f, database %.0f kB more", e.name, c.waiting, (after[0]-before[0])/1000, (after[1]-before[1])/1000, (after[2]-before[2])/1000, (after[3]-before[3])/1000)
	return nil
}

// held is the memory of the broker, of Redis and of a contender's processes, and the size of its database, in bytes.
func (c *comparison) held(ctx context.Context, t *team) (all [4]float64, err error) {
	text, err := c.services.amqp.Eval(ctx, "[erlang:garbage_collect(P) || P <- erlang:processes()], erlang:memory(total).")
	if err != nil {
		return all, err
	}
	if _, err := fmt.Sscan(text, &all[0]); err != nil {
		return all, fmt.Errorf("memory of the broker: %w", err)
	}
	if all[1], err = c.services.redis.memory(ctx); err != nil {
		return all, err
	}
	if all[2], err = t.memory(ctx); err != nil {
		return all, err
	}
	all[3], err = t.stored(ctx)
	return all, err
}

// together runs all contenders on one timeline.
func (c *comparison) together(ctx context.Context, found *results) error {
	timeouts := usualTimeouts(c.fast)
	f := &field{services: c.services, fast: c.fast, seed: seed, say: c.say}
	defer func() { _ = f.each(func(t *team) error { t.Stop(); return nil }) }()
	for _, e := range c.entries {
		t, err := c.team(ctx, e, "all", timeouts)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		f.teams = append(f.teams, t)
	}
	all := phases(c.orders, c.fast, c.phases)
	ends := map[string]time.Time{}
	for _, p := range all {
		c.say("%s: %s", p.name, p.title)
		found.Phases = append(found.Phases, p.name)
		if err := f.run(ctx, p, timeouts, settle(c.fast)); err != nil {
			return err
		}
		ends[p.name] = time.Now()
	}
	// Whoever looks again at what it has lost has a minute more for it.
	if err := sleepUntil(ctx, time.Now().Add(70*time.Second)); err != nil {
		return err
	}
	found.Failed = f.failed
	for _, t := range f.teams {
		if err := c.countTeam(ctx, t, ends, found); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) countTeam(ctx context.Context, t *team, ends map[string]time.Time, found *results) error {
	db, err := t.open()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	byPhase := map[string]tally{}
	if byPhase[""], err = count(ctx, tx, "", time.Now()); err != nil {
		return err
	}
	for name, end := range ends {
		if byPhase[name], err = count(ctx, tx, name, end); err != nil {
			return err
		}
	}
	found.Together[t.name] = byPhase
	found.Conserved[t.name], err = conserved(ctx, tx)
	return err
}
