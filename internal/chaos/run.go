package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

// Options says what is run. Required: Program, Logs, Out.
type Options struct {
	// Program is the duebox program.
	Program string
	// Seed draws the schedule and the load.
	Seed uint64
	// For is about how long there are faults.
	For time.Duration
	// Faults are what is done instead of what Seed draws, one after the other.
	Faults []Fault
	// Rate is how many orders are placed in a second; default 8.
	Rate float64
	// Presale is how long a presale order may stay unpaid, which is how far ahead the broker is given messages; default 25 s.
	Presale time.Duration
	// Strategy is the workers' DELAY_STRATEGY; default: drawn from Seed, and auto where Faults are given.
	Strategy string
	// Dir is where the services make their folders; default os.TempDir().
	Dir string
	// Logs is a folder for what the product's processes say.
	Logs string
	// Out receives what happens, line by line.
	Out io.Writer
}

const (
	// How long nothing must have moved at the end for messages to be lost: longer than a repair takes.
	patience = 3 * grace
	// What inflicting or undoing one fault may take.
	faultLimit = 2 * time.Minute
	tellEach   = 5 * time.Second
	look       = 200 * time.Millisecond
)

// run is one run.
type run struct {
	Options
	*stage

	log    *logs
	load   *load
	steps  []Step
	began  time.Time
	report Report

	when calendar

	saying sync.Mutex
	mu     sync.Mutex
	doing  string
}

// Run runs the system under faults and reports what was found; the error says that the run could not be made. When it returns,
// nothing that it has started runs any more.
func Run(ctx context.Context, o Options) (report Report, err error) {
	o.Rate = cmp.Or(o.Rate, 8)
	o.Presale = cmp.Or(o.Presale, presaleTimeout)
	if o.Strategy == "" {
		o.Strategy = "auto"
		if len(o.Faults) == 0 {
			o.Strategy = drawStrategy(o.Seed)
		}
	}
	log, err := newLogs(o.Logs)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	zerolog.SetGlobalLevel(zerolog.Disabled) // the proxies have a logger of their own besides the one that they are given
	r := &run{Options: o, log: log, doing: "nothing", began: time.Now()}
	r.say("seed %d, strategy %s; starting", o.Seed, o.Strategy)
	r.stage, err = setUp(ctx, o, log)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return Report{}, err
	}
	if err := r.play(ctx); err != nil {
		return Report{}, err
	}
	return r.report, nil
}

func (r *run) say(format string, args ...any) {
	r.saying.Lock()
	defer r.saying.Unlock()
	_, _ = fmt.Fprintf(r.Out, "%5.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// play is the story: load, peace, faults, peace, the end of the load, the check.
func (r *run) play(ctx context.Context) error {
	r.steps = directed(r.Faults)
	if len(r.steps) == 0 {
		r.steps = draw(r.Seed, r.For, kinds(r.broker.Exchange()))
	}
	r.load = &load{
		shop: newShop(r.api.url), ledger: NewLedger(), rate: r.Rate,
		random: rand.New(rand.NewPCG(r.Seed, 1)), //nolint:gosec // repeatable on purpose
	}
	defer r.load.shop.close()
	if err := r.load.preload(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	placing, closeShop := context.WithCancel(ctx)
	var shopping, telling sync.WaitGroup
	defer telling.Wait()
	defer shopping.Wait()
	defer cancel()
	defer closeShop()
	shopping.Go(func() { r.load.run(ctx, placing) })
	telling.Go(func() { r.tell(ctx) })

	r.say("orders come in; nothing is wrong yet")
	if err := pause(ctx, settling); err != nil {
		return err
	}
	before, err := r.goroutines(ctx)
	if err != nil {
		return err
	}
	for _, step := range r.steps {
		if err := pause(ctx, step.Pause); err != nil {
			return err
		}
		if err := r.perform(ctx, step); err != nil {
			return err
		}
	}
	r.load.late.Store(true)
	r.do("nothing any more")
	if err := pause(ctx, settling+bound); err != nil {
		return err
	}
	closeShop()
	shopping.Wait()
	r.do("nothing; no more orders come in")
	if err := r.awaitEnd(ctx); err != nil {
		return err
	}
	return r.judge(ctx, before)
}

// perform makes one step of the schedule and returns when it is undone.
func (r *run) perform(ctx context.Context, step Step) error {
	r.do("%s", step)
	s := span{begin: time.Now().UTC()}
	all := kinds(r.broker.Exchange())
	group, working := errgroup.WithContext(ctx)
	for i, f := range step.Faults {
		k, ok := find(all, f.Kind)
		if !ok {
			return fmt.Errorf("this broker, whose delayed exchange is the %s, cannot %s", r.broker.Exchange(), f.Kind)
		}
		s.silent = s.silent || k.silent
		group.Go(func() error {
			if err := pause(working, time.Duration(i)*offset); err != nil {
				return err
			}
			return r.befall(working, k, f)
		})
	}
	err := group.Wait()
	s.end = time.Now().UTC()
	r.when = append(r.when, s)
	r.report.Faults = append(r.report.Faults, fmt.Sprintf("%4.0f s to %4.0f s  %s", s.begin.Sub(r.began).Seconds(), s.end.Sub(r.began).Seconds(), step))
	r.do("nothing")
	return err
}

func (r *run) befall(ctx context.Context, k kind, f Fault) error {
	inflicting, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	heal, err := k.inflict(inflicting, r.stage, f)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Kind, err)
	}
	if err := pause(ctx, f.Lasts); err != nil {
		return err
	}
	healing, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	if err := heal(healing); err != nil {
		return fmt.Errorf("undo %s: %w", f.Kind, err)
	}
	return nil
}

// awaitEnd waits until no order is pending and no message can take effect any more, or nothing has moved for longer than
// anything may take.
func (r *run) awaitEnd(ctx context.Context) error {
	last, moved := -1, time.Now()
	for {
		var left int
		err := r.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM orders WHERE status = 'pending')
			+ (SELECT COUNT(*) FROM outbox_messages WHERE state IN ('scheduled', 'published'))`).Scan(&left)
		if err != nil {
			return fmt.Errorf("read how far the run has come: %w", err)
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if left == 0 {
			return nil
		}
		if time.Since(moved) > patience {
			r.say("nothing has moved for %v, and %d orders and messages are left", patience, left)
			return nil
		}
		if err := pause(ctx, look); err != nil {
			return err
		}
	}
}

// do notes what is being done, and says it.
func (r *run) do(format string, args ...any) {
	doing := fmt.Sprintf(format, args...)
	r.say("%s", doing)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing = doing
}

// tell says every few seconds how it goes, until ctx ends.
func (r *run) tell(ctx context.Context) {
	for pause(ctx, tellEach) == nil {
		c := r.load.ledger.Counts()
		r.mu.Lock()
		doing := r.doing
		r.mu.Unlock()
		r.say("placed %d, unknown %d, paid %d, canceled %d, rescheduled %d; wrong: %s", c.Placed, c.Unknown, c.Paid, c.Canceled, c.Rescheduled, doing)
	}
}
