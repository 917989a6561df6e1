package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/duebox/duebox/internal/child"
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
	drainLimit = 20 * time.Second // less than stopLimit
)

// processes are the API and the worker.
type processes struct {
	api, worker       *child.Process
	apiURL, workerURL string
}

// environment is all that api, worker and migrate know: nothing of the caller's settings reaches them.
func (r *run) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "TZ=" + os.Getenv("TZ"),
		"MYSQL_DSN=" + r.services.dsn, "AMQP_URL=" + r.services.broker.URL(),
		"NAMESPACE=demo", "MIGRATE_ON_START=false", "RATE_LIMIT=0", "DRAIN_TIMEOUT=" + drainLimit.String(),
		"ORDER_TIMEOUT_NORMAL=" + r.limits.normal.String(),
		"ORDER_TIMEOUT_FLASH=" + r.limits.flash.String(),
		"ORDER_TIMEOUT_PRESALE=" + r.limits.presale.String(),
		"ORDER_REMIND_BEFORE=" + r.limits.remindBefore().String(),
		// As much shorter as the demo is: what the broker has lost is noticed while somebody watches.
		"GRACE=5s", "RECONCILE_SCHEDULE=@every 5s",
	}
}

// startProcesses migrates the database and starts the API and the worker.
func (r *run) startProcesses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	env := r.environment()
	migrate, err := child.Start(r.Program, "duebox migrate", []string{"migrate"}, env, nil)
	if err != nil {
		return err
	}
	if err := migrate.Wait(ctx); err != nil {
		return err
	}
	if r.worker, r.workerURL, err = r.listen(ctx, "WORKER_HTTP_ADDR", r.deliveries.read, "worker", "--log-level=debug"); err != nil {
		return err
	}
	r.api, r.apiURL, err = r.listen(ctx, "HTTP_ADDR", nil, "api")
	return err
}

// listen starts a process on a free port and returns when it is ready.
func (r *run) listen(ctx context.Context, variable string, onLine func([]byte), args ...string) (*child.Process, string, error) {
	for tries := 1; ; tries++ {
		address, err := child.FreeAddress(ctx)
		if err != nil {
			return nil, "", err
		}
		c, err := child.Start(r.Program, "duebox "+args[0], args, append(r.environment(), variable+"="+address), onLine)
		if err != nil {
			return nil, "", err
		}
		url := "http://" + address
		err = child.AwaitReady(ctx, c, url)
		if err == nil {
			return c, url, nil
		}
		taken := strings.Contains(c.Tail(), "address already in use") // somebody was faster
		c.Kill()
		if !taken || tries == 3 {
			return nil, "", fmt.Errorf("%s is not ready: %w", c.Name(), err)
		}
	}
}

// stopProcesses drains what runs, the API first, so that nothing new comes in.
func (p *processes) stop() error {
	var errs []error
	for _, c := range []*child.Process{p.api, p.worker} {
		if c != nil {
			errs = append(errs, c.Stop(stopLimit))
		}
	}
	p.api, p.worker = nil, nil
	return errors.Join(errs...)
}
