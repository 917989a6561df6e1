package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
	drainLimit = 20 * time.Second // less than stopLimit
)

// processes are the API and the worker.
type processes struct {
	api, worker       *child
	apiURL, workerURL string
}

// environment is all that api, worker and migrate know: nothing of the caller's settings reaches them.
func (r *run) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "TZ=" + os.Getenv("TZ"),
		"MYSQL_DSN=" + r.services.dsn, "AMQP_URL=" + r.services.broker.URL(),
		"NAMESPACE=demo", "MIGRATE_ON_START=false", "DRAIN_TIMEOUT=" + drainLimit.String(),
		"ORDER_TIMEOUT_NORMAL=" + r.limits.normal.String(),
		"ORDER_TIMEOUT_FLASH=" + r.limits.flash.String(),
		"ORDER_TIMEOUT_PRESALE=" + r.limits.presale.String(),
		// As much shorter as the demo is: what the broker has lost is noticed while somebody watches.
		"GRACE=5s", "RECONCILE_SCHEDULE=@every 5s",
	}
}

// startProcesses migrates the database and starts the API and the worker.
func (r *run) startProcesses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	env := r.environment()
	migrate, err := start(r.Program, "duebox migrate", []string{"migrate"}, env, nil)
	if err != nil {
		return err
	}
	if err := migrate.wait(ctx); err != nil {
		return err
	}
	if r.worker, r.workerURL, err = r.listen(ctx, "WORKER_HTTP_ADDR", r.deliveries.read, "worker", "--log-level=debug"); err != nil {
		return err
	}
	r.api, r.apiURL, err = r.listen(ctx, "HTTP_ADDR", nil, "api")
	return err
}

// listen starts a process on a free port and returns when it is ready.
func (r *run) listen(ctx context.Context, variable string, onLine func([]byte), args ...string) (*child, string, error) {
	for tries := 1; ; tries++ {
		address, err := freeAddress(ctx)
		if err != nil {
			return nil, "", err
		}
		c, err := start(r.Program, "duebox "+args[0], args, append(r.environment(), variable+"="+address), onLine)
		if err != nil {
			return nil, "", err
		}
		url := "http://" + address
		err = awaitReady(ctx, c, url)
		if err == nil {
			return c, url, nil
		}
		taken := strings.Contains(c.tail.text(), "address already in use") // somebody was faster
		_ = c.proc.Kill()
		<-c.done
		if !taken || tries == 3 {
			return nil, "", fmt.Errorf("%s is not ready: %w", c.name, err)
		}
	}
}

func awaitReady(ctx context.Context, c *child, url string) error {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	pause := time.NewTicker(25 * time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-c.done:
			return errors.Join(errors.New("it ended"), c.ended())
		case <-ctx.Done():
			return fmt.Errorf("%w; it said last:\n%s", context.Cause(ctx), c.tail.text())
		case <-pause.C:
		}
		if status, err := get(ctx, client, url+"/readyz", nil); err == nil && status == http.StatusOK {
			return nil
		}
	}
}

// freeAddress finds a port on which nobody listens, beside those that the services take and below those that the kernel
// gives to outgoing connections.
func freeAddress(ctx context.Context) (string, error) {
	const first, last = 32100, 32700
	for range 200 {
		port := first + rand.IntN(last-first) //nolint:gosec // guards nothing
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("no free port between %d and %d", first, last)
}

// stopProcesses drains what runs, the API first, so that nothing new comes in.
func (p *processes) stop() error {
	var errs []error
	for _, c := range []*child{p.api, p.worker} {
		if c != nil {
			errs = append(errs, c.stop(stopLimit))
		}
	}
	p.api, p.worker = nil, nil
	return errors.Join(errs...)
}
