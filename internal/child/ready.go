package child

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

// AwaitReady returns when GET url/readyz is answered with 200, and an error when the process or ctx ends first.
func AwaitReady(ctx context.Context, c *Process, url string) error {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	pause := time.NewTicker(25 * time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-c.done:
			return errors.Join(errors.New("it ended"), c.Ended())
		case <-ctx.Done():
			return fmt.Errorf("%w; it said last:\n%s", context.Cause(ctx), c.Tail())
		case <-pause.C:
		}
		if ready(ctx, client, url+"/readyz") {
			return nil
		}
	}
}

func ready(ctx context.Context, client *http.Client, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// FreeAddress finds a port of 127.0.0.1 on which nobody listens, beside those that the services take and below those that
// the kernel gives to outgoing connections. Somebody may be faster and listen there before the caller does.
func FreeAddress(ctx context.Context) (string, error) {
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
