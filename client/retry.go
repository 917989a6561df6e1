package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

// tries paces the tries of one call.
type tries struct {
	until time.Time
	pause time.Duration
}

func newTries(patience time.Duration) *tries {
	return &tries{until: time.Now().Add(patience), pause: firstPause}
}

// wait waits for the next try after err; false if there is none, because patience or ctx would end before.
func (t *tries) wait(ctx context.Context, err error) bool {
	// Half of it is chance, so that many who failed together do not come back together.
	pause := t.pause/2 + rand.N(t.pause/2) //nolint:gosec // spread, not a secret
	t.pause = min(2*t.pause, mostPause)
	if p, ok := errors.AsType[*ProblemError](err); ok {
		pause = max(pause, p.RetryAfter)
	}
	if time.Now().Add(pause).After(t.until) {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// passes says whether the same request may succeed later.
func passes(err error) bool {
	if p, ok := errors.AsType[*ProblemError](err); ok {
		switch p.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	_, broken := errors.AsType[*answerError](err)
	return !broken // there was no answer
}

// answerError is a success whose body is not what the document says.
type answerError struct{ err error }

func (e *answerError) Error() string { return "the answer is not what was asked for: " + e.err.Error() }

func (e *answerError) Unwrap() error { return e.err }
