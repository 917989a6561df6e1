package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"
)

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
	window, idle := quietWindow(c.fast), length(c.fast, 3*time.Second, 10*time.Second)
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
