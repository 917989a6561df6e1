package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// field is where contenders run beside each other.
type field struct {
	services *services
	teams    []*team
	fast     bool
	seed     uint64
	failed   []string // what could not be done, by phases
	say      func(format string, args ...any)
}

// phase is a part of the timeline: orders are placed evenly, and a fault comes while some are due and others wait.
type phase struct {
	name, title string
	orders      int
	window      time.Duration // in which orders are placed
	at          time.Duration // when the fault comes, after the phase has begun
	fault       func(ctx context.Context, f *field) error
	// change makes of the usual sales those of the contender with this number.
	change func(sales []sale, p *phase, timeouts map[string]time.Duration, number int)
}

// burst is the phase that has the most to close at once.
const burst = "burst"

// phases are the timeline, of so many orders in all, or a part of it, of which each phase is as large as in the whole.
func phases(orders int, fast bool, only []string) []phase {
	const quarter = 4 // of all orders, for the burst
	all := []phase{
		{name: "calm", title: "nothing happens"},
		{name: burst, title: "a quarter of all orders is due in one second", change: together},
		{name: "race", title: "each order is paid when it is due or within a second", change: paidWhenDue},
		{name: "broker-restart", title: "broker: clean restart", fault: restart(func(f *field) victim { return f.services.amqp })},
		{name: "broker-kill", title: "broker: kill -9", fault: kill(func(f *field) victim { return f.services.amqp })},
		{name: "broker-wipe", title: "broker: data wiped", fault: wipe(func(f *field) victim { return f.services.amqp })},
		{name: "redis-restart", title: "Redis: clean restart", fault: restart(func(f *field) victim { return f.services.redis })},
		{name: "redis-kill", title: "Redis: kill -9", fault: kill(func(f *field) victim { return f.services.redis })},
		{name: "redis-wipe", title: "Redis: data wiped", fault: wipe(func(f *field) victim { return f.services.redis })},
		{name: "database-restart", title: "database: clean restart", fault: restart(func(f *field) victim { return f.services.db })},
		{name: "database-kill", title: "database: kill -9", fault: kill(func(f *field) victim { return f.services.db })},
		{name: "worker-beside", title: "worker: another one beside it for a time", fault: beside(length(fast, 12*time.Second, 90*time.Second))},
		{name: "worker-frozen", title: "worker: stands still, and goes on", fault: frozen(length(fast, 12*time.Second, 30*time.Second))},
		{name: "worker-restart", title: "worker: clean restart", fault: workers(false, 0)},
		{name: "worker-kill", title: "worker: kill -9", fault: workers(true, 0)},
		{name: "worker-down", title: "worker: down while orders come due", fault: workers(true, length(fast, 6*time.Second, 20*time.Second))},
		{name: "worker-shorter", title: "worker: started again with the shortest timeout instead of the longest", fault: shorten, change: shorter},
	}
	if fast {
		all = slices.DeleteFunc(all, func(p phase) bool { return !slices.Contains(fastPhases(), p.name) && !slices.Contains(only, p.name) })
	}
	parts := len(all)
	if fast {
		parts = len(fastPhases())
	}
	many := orders / quarter
	share := (orders - many) / (parts - 1)
	for i := range all {
		p := &all[i]
		p.orders, p.window, p.at = share, window(fast), length(fast, 7*time.Second, 30*time.Second)
		switch p.name {
		case burst:
			p.orders = many
		case "calm":
			p.orders += orders - many - share*(parts-1)
		}
	}
	if len(only) > 0 {
		all = slices.DeleteFunc(all, func(p phase) bool { return !slices.Contains(only, p.name) })
	}
	return all
}

// fastPhases are the parts that a fast run has where it is not told which.
func fastPhases() []string { return []string{"calm", burst, "broker-kill", "worker-down"} }

// length is one of two times: that of a fast run, or the whole one.
func length(fast bool, short, whole time.Duration) time.Duration {
	if fast {
		return short
	}
	return whole
}

// window is how long orders of a phase are placed.
func window(fast bool) time.Duration { return length(fast, 10*time.Second, 40*time.Second) }

// settle is how long a phase goes on after the last due time.
func settle(fast bool) time.Duration { return length(fast, 8*time.Second, 20*time.Second) }

// quietWindow is how long orders are placed of a contender alone.
func quietWindow(fast bool) time.Duration { return length(fast, 5*time.Second, 20*time.Second) }

func phaseNames() (names []string) {
	for _, p := range phases(0, false, nil) {
		names = append(names, p.name)
	}
	return names
}

// victim is a server that can be hurt.
type victim interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Kill() error
	Wipe() error
}

func restart(of func(f *field) victim) func(ctx context.Context, f *field) error {
	return func(ctx context.Context, f *field) error {
		return errors.Join(of(f).Stop(ctx), of(f).Start(ctx))
	}
}

func kill(of func(f *field) victim) func(ctx context.Context, f *field) error {
	return func(ctx context.Context, f *field) error { return errors.Join(of(f).Kill(), of(f).Start(ctx)) }
}

func wipe(of func(f *field) victim) func(ctx context.Context, f *field) error {
	return func(ctx context.Context, f *field) error { return errors.Join(of(f).Wipe(), of(f).Start(ctx)) }
}

// workers ends what closes orders, of all contenders, and starts it again.
func workers(byKill bool, pause time.Duration) func(ctx context.Context, f *field) error {
	return func(ctx context.Context, f *field) error {
		return f.each(func(t *team) error {
			t.endWorkers(byKill)
			if err := sleepUntil(ctx, time.Now().Add(pause)); err != nil {
				return err
			}
			return t.startAgain(ctx)
		})
	}
}

// beside has as many workers again for a while, as at a deployment, or by mistake.
func beside(pause time.Duration) func(ctx context.Context, f *field) error {
	return func(ctx context.Context, f *field) error {
		return f.each(func(t *team) error {
			old := t.workers
			if err := t.startWorkers(ctx, max(1, t.entry.workers)); err != nil {
				return err
			}
			err := sleepUntil(ctx, time.Now().Add(pause))
			for _, p := range t.workers[len(old):] {
				_ = p.Stop(20 * time.Second) // how a contender ends is its own affair
			}
			t.workers = old
			return err
		})
	}
}

// frozen stops what closes orders, and has it go on, as when a machine is moved: it knows nothing of the time between, and others have given it up.
func frozen(pause time.Duration) func(ctx context.Context, f *field) error {
	return func(ctx context.Context, f *field) error {
		return f.each(func(t *team) (err error) {
			for _, p := range t.closers() {
				err = errors.Join(err, p.Signal(syscall.SIGSTOP))
			}
			err = errors.Join(err, sleepUntil(ctx, time.Now().Add(pause)))
			for _, p := range t.closers() {
				err = errors.Join(err, p.Signal(syscall.SIGCONT))
			}
			return err
		})
	}
}

// shortened has the longest timeout as short as the shortest.
func shortened(timeouts map[string]time.Duration) map[string]time.Duration {
	less := maps.Clone(timeouts)
	less["presale"] = timeouts["flash"]
	return less
}

func shorten(ctx context.Context, f *field) error {
	return f.each(func(t *team) error {
		t.settings.Timeouts = shortened(t.settings.Timeouts)
		t.Stop()
		return t.Start(ctx)
	})
}

func shorter(sales []sale, p *phase, timeouts map[string]time.Duration, _ int) {
	for i := range sales {
		if s := &sales[i]; s.at >= p.at {
			s.Timeout, s.isPaid = shortened(timeouts)[s.Kind], false
		}
	}
}

// together has all orders due within about a second: none is paid, and each is placed as long before as its kind may stay unpaid. Contenders follow each
// other, because no machine takes all of their orders in one second.
func together(sales []sale, p *phase, timeouts map[string]time.Duration, number int) {
	longest := slices.Max(slices.Collect(maps.Values(timeouts)))
	order := slices.Sorted(maps.Keys(timeouts))
	for i := range sales {
		s := &sales[i]
		s.isPaid, s.Kind = false, order[i%len(order)]
		s.Timeout = timeouts[s.Kind]
		s.at = burstApart*time.Duration(number) + longest - s.Timeout + time.Second*time.Duration(i)/time.Duration(len(sales))
	}
	slices.SortFunc(sales, func(a, b sale) int { return cmp.Compare(a.at, b.at) })
}

// burstApart is such that nobody places a part of its burst in the 15 s after another's is due: with parts 2 min, 30 s and 10 s before, no multiple of it
// is from 8 to 25, from 28 to 45 or from 118 to 135 s.
const burstApart = 27500 * time.Millisecond

// paidWhenDue has half of the orders paid within 10 ms of their due times, and half within the second in which those who ask each second close them.
func paidWhenDue(sales []sale, _ *phase, _ map[string]time.Duration, _ int) {
	for i := range sales {
		s := &sales[i]
		s.isPaid, s.whenDue = true, true
		s.lag = time.Duration(i%20-10) * time.Millisecond
		if i%2 == 1 {
			s.lag = time.Second * time.Duration(i) / time.Duration(len(sales))
		}
	}
}

// each does something to all contenders at once.
func (f *field) each(do func(t *team) error) error {
	var g errgroup.Group
	for _, t := range f.teams {
		g.Go(func() error { return do(t) })
	}
	return g.Wait()
}

// run runs a phase until everything in it should be over.
func (f *field) run(ctx context.Context, p phase, timeouts map[string]time.Duration, settle time.Duration) error {
	r := rand.New(rand.NewPCG(f.seed, uint64(crc32.ChecksumIEEE([]byte(p.name))))) //nolint:gosec // draws orders, guards nothing
	longest := slices.Max(slices.Collect(maps.Values(timeouts)))
	sales := plan(r, p.name, p.orders, p.window, timeouts, longest)
	begun := time.Now().Add(time.Second)
	var (
		g    errgroup.Group
		last time.Duration
	)
	for i, t := range f.teams {
		own := slices.Clone(sales)
		if p.change != nil {
			p.change(own, &p, timeouts, i)
		}
		for _, s := range own {
			last = max(last, s.at+s.Timeout)
		}
		g.Go(func() error { return newClient(t).sell(ctx, begun, own) })
	}
	if p.fault != nil {
		g.Go(func() error {
			if err := sleepUntil(ctx, begun.Add(p.at)); err != nil {
				return err
			}
			if err := p.fault(ctx, f); err != nil {
				return fmt.Errorf("%s: %w", p.title, err)
			}
			return f.services.userStatistics(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		f.say("%s: %v", p.name, err)
		f.failed = append(f.failed, fmt.Sprintf("%s: %v", p.name, err))
	}
	over := begun.Add(last + settle)
	for _, t := range f.teams {
		due, err := t.lastDue(ctx, p.name)
		if err != nil {
			return err
		}
		if due := due.Add(settle); due.After(over) { // placing took longer than planned
			over = due
		}
	}
	return sleepUntil(ctx, over)
}
