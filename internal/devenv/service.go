package devenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var errRunning = errors.New("devenv: the service is running")

// awaitReady asks ready until it answers nil. It ends early when the process
// does, and says what the log says.
func awaitReady(ctx context.Context, p *process, log string, ready func(context.Context) error) error {
	pause := time.NewTicker(pollPause)
	defer pause.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended while starting: %s", tail(log))
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %s", context.Cause(ctx), err, tail(log))
		case <-pause.C:
		}
	}
}

// service is what startFirst needs of one.
type service interface {
	Start(context.Context) error
	Close() error
}

// startFirst makes a service and starts it. A foreign program may take a port
// between the look and the listen; then everything is made anew.
func startFirst[S service](ctx context.Context, log io.Writer, needs int, build func(*ports) (S, error)) (S, error) {
	var none S
	for tries := 1; ; tries++ {
		p, err := takePorts(ctx, needs)
		if err != nil {
			return none, err
		}
		s, err := build(p)
		if err != nil {
			p.release()
			return none, err
		}
		err = s.Start(ctx)
		if err == nil {
			return s, nil
		}
		// Start leaves nothing running: a port that is taken is not ours.
		taken := !p.free(ctx, needs)
		err = errors.Join(err, s.Close())
		if !taken || tries == 3 || ctx.Err() != nil {
			return none, err
		}
		say(log, "port %d was taken, trying others", p.base)
	}
}

// limited gives ctx a deadline if it has none.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
