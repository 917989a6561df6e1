package rabbitmq

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// newPauses returns pauses drawn from 0 to twice an interval that doubles from 100 ms to 2.5 s: after an outage,
// processes that lost the same broker do not come back in step.
func newPauses() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval:     100 * time.Millisecond,
		RandomizationFactor: 1,
		Multiplier:          2,
		MaxInterval:         2500 * time.Millisecond,
	}
}

// pause waits for d; false when ctx or one of stops ended first.
func pause(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}

// throttle lets something through at most once in a period and counts what it held back.
type throttle struct {
	period time.Duration

	mu   sync.Mutex
	next time.Time
	held int
}

func (t *throttle) allow() bool {
	_, ok := t.take()
	return ok
}

// pass returns logger, or one that drops everything when it is not time yet.
func (t *throttle) pass(logger *slog.Logger) *slog.Logger {
	held, ok := t.take()
	switch {
	case !ok:
		return slog.New(slog.DiscardHandler)
	case held > 0:
		return logger.With(slog.Int("similar", held))
	}
	return logger
}

func (t *throttle) take() (held int, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.held++
		return 0, false
	}
	held = t.held
	t.next, t.held = now.Add(t.period), 0
	return held, true
}
