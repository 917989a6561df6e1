package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/duebox/duebox/internal/child"
)

const (
	// How long nothing must have moved for an order that is past its due time to be lost: a backlog that is being worked off is
	// late only.
	patience = time.Minute
	// How long nothing must have been delivered for the run to be over: duplicates come last.
	quietTime = time.Second
	pollPause = 100 * time.Millisecond
	// How old the broker's queues must be when it is killed. RabbitMQ 3.10 remembers with a delay of three
	// seconds that it has a quorum queue, and one that it has half forgotten never works again.
	queueAge = 4 * time.Second
)

// run is one demo.
type run struct {
	Options
	limits   limits
	console  *console
	services *services
	processes
	deliveries deliveries
}

// Run runs the demo and prints what came of it. It returns ErrFound if the check found something wrong, another error if it
// could not run to its end: bad options and files before anything is started. When it returns, nothing that it started runs
// any more.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	r := &run{Options: o, limits: limitsOf(o.Timeout), console: &console{out: o.Stderr, terminal: o.Terminal}}
	plan, err := r.makePlan()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(ctx); err != nil {
		return err
	}
	result, err := r.play(ctx, plan)
	if err != nil {
		return err
	}
	if err := result.print(o.Stdout); err != nil {
		return err
	}
	if o.JSON {
		if err := result.printJSON(o.Stdout); err != nil {
			return err
		}
	}
	verdict := result.verdict()
	if o.Keep {
		r.keep(ctx, verdict)
	}
	return verdict
}

func (r *run) makePlan() ([]planned, error) {
	if r.OrdersFile != "" {
		return readOrders(r.OrdersFile, r.Orders, r.limits)
	}
	if r.Orders == 0 {
		r.Orders = DefaultOrders
	}
	return mix(r.Orders, r.limits), nil
}

func (r *run) start(ctx context.Context) (err error) {
	if r.services, err = startServices(ctx, r.Dir, r.console); err != nil {
		return err
	}
	if err := r.startProcesses(ctx); err != nil {
		return err
	}
	r.console.say("API listens on %s, worker on %s", r.apiURL, r.workerURL)
	return nil
}

// close drains the processes and ends the services.
func (r *run) close() error {
	err := r.stop()
	if r.services != nil {
		err = errors.Join(err, r.services.close())
	}
	return err
}

// play places and pays the orders, waits until all is over and checks.
func (r *run) play(ctx context.Context, plan []planned) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	background.Go(func() { r.watch(ctx, cancel) })

	shop, err := newShop(r.apiURL)
	if err != nil {
		return Result{}, err
	}
	defer shop.close()
	d := &drive{shop: shop, plan: plan, rate: r.Rate}
	given, err := d.preload(ctx)
	if err != nil {
		return Result{}, err
	}
	// Not before half an order's life has passed: a broker that is killed shall lose some of what it holds and keep some. And
	// not while its queues are new: see queueAge.
	notBefore := time.Now().Add(max(r.limits.normal/2, queueAge))
	disturbed := make(chan error, 1)
	d.onHalf = func() {
		background.Go(func() {
			if err := pause(ctx, time.Until(notBefore)); err != nil {
				disturbed <- err
				return
			}
			disturbed <- r.atHalf(ctx, d)
		})
	}
	background.Go(func() { r.console.progress(ctx, r.services.db, d) })

	if !r.Terminal { // there is no bar to tell
		r.console.say("placing %d orders; this takes about %v", len(plan), takes(plan, r.Rate, r.limits).Round(time.Second))
	}
	began := time.Now()
	if err := d.run(ctx); err != nil {
		return Result{}, err
	}
	if err := <-disturbed; err != nil {
		return Result{}, err
	}
	ended, err := r.awaitEnd(ctx)
	if err != nil {
		return Result{}, err
	}
	result, err := r.verify(ctx, d, given)
	result.Seconds = seconds(ended.Sub(began))
	return result, err
}

// atHalf does to the system what the run is meant to show it survives.
func (r *run) atHalf(ctx context.Context, d *drive) error {
	if r.disturb != nil {
		if err := r.disturb(ctx, r.services.db); err != nil {
			return err
		}
	}
	if !r.KillBroker {
		return nil
	}
	r.console.say("kill -9 to the broker, with %d orders placed", d.placed.Load())
	return r.services.killBroker(ctx)
}

// watch gives the run up when a process ends on its own.
func (r *run) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	var ended *child.Process
	select {
	case <-ctx.Done():
		return
	case <-r.api.Done():
		ended = r.api
	case <-r.worker.Done():
		ended = r.worker
	}
	cancel(errors.Join(fmt.Errorf("%s ended while it was needed", ended.Name()), ended.Ended()))
}

// awaitEnd waits until no order is pending, no message can take effect any more and no delivery comes, or an order is
// lost. It returns when that was so.
func (r *run) awaitEnd(ctx context.Context) (time.Time, error) {
	var (
		last  status
		moved = time.Now()
	)
	for {
		s, err := readStatus(ctx, r.services.db)
		if err != nil {
			return time.Time{}, fmt.Errorf("read how far the run has come: %w", err)
		}
		now := time.Now()
		if s.pending == 0 && s.live == 0 {
			return now, r.awaitQuiet(ctx)
		}
		if s.untilDue > 0 || s.pending != last.pending || s.live != last.live {
			last, moved = s, now
		}
		if now.Sub(moved) > patience {
			return now, nil
		}
		if err := pause(ctx, pollPause); err != nil {
			return now, err
		}
	}
}

// awaitQuiet waits for duplicates that are still on their way.
func (r *run) awaitQuiet(ctx context.Context) error {
	end := time.Now().Add(patience)
	for r.deliveries.quiet() < quietTime && time.Now().Before(end) {
		if err := pause(ctx, pollPause); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) verify(ctx context.Context, d *drive, given map[string]int64) (Result, error) {
	f, err := check(ctx, r.services.db, given, d.numbers)
	if err != nil {
		return Result{}, err
	}
	if err := f.checkLate(ctx, r.services.db, d.late); err != nil {
		return Result{}, fmt.Errorf("check the refunds: %w", err)
	}
	result := newResult(f)
	result.LatenessMS = r.deliveries.late()
	// Without the guard a duplicate is not dropped but takes effect.
	result.DuplicateDeliveries = r.deliveries.dropped() + f.duplicateEffects
	result.Exchange = r.services.broker.Exchange()
	result.Strategy, err = r.strategy(ctx)
	return result, err
}

// strategy asks the worker how it delays messages.
func (r *run) strategy(ctx context.Context) (string, error) {
	const askLimit = 10 * time.Second
	client := &http.Client{Timeout: askLimit}
	defer client.CloseIdleConnections()
	var ready struct {
		Publisher struct {
			Strategy string `json:"strategy"`
		} `json:"publisher"`
	}
	if _, err := get(ctx, client, r.workerURL+"/readyz", &ready); err != nil {
		return "", fmt.Errorf("ask the worker for its strategy: %w", err)
	}
	return ready.Publisher.Strategy, nil
}

// keep says what the verdict is, which stands whatever is done from now on, and where everything is, and waits.
func (r *run) keep(ctx context.Context, verdict error) {
	if verdict == nil {
		r.console.say("the check found nothing wrong, and is over: place orders of your own")
	} else {
		r.console.say("%v", verdict)
	}
	r.console.say("API      %s", r.apiURL)
	r.console.say("worker   %s/readyz", r.workerURL)
	r.console.say("MySQL    %s", r.services.dsn)
	r.console.say("RabbitMQ %s", r.services.broker.URL())
	r.console.say("all of it runs until you press Ctrl-C")
	select {
	case <-ctx.Done():
	case <-r.api.Done():
		r.console.say("%s has ended: %v", r.api.Name(), r.api.Ended())
	case <-r.worker.Done():
		r.console.say("%s has ended: %v", r.worker.Name(), r.worker.Ended())
	}
}
