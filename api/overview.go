package api

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/outbox"
)

// getOverview answers from a snapshot, so that it costs the same however many look at the page.
func (s *Server) getOverview(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	body, err := s.overview.get(c.Request.Context(), s.ops.Overview)
	return ok(body), operatorError(err)
}

// snapshotLife is how old an overview may be.
const snapshotLife = 2 * time.Second

// snapshot is the overview as it was last read. One request reads it at a time, and others wait for that.
type snapshot struct {
	turn  chan struct{} // holds one while somebody reads or writes the rest
	at    time.Time
	last  overviewJSON
	rates rates
}

func newSnapshot() *snapshot { return &snapshot{turn: make(chan struct{}, 1)} }

func (s *snapshot) get(ctx context.Context, read func(context.Context) (outbox.Overview, error)) (overviewJSON, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return overviewJSON{}, ctx.Err()
	}
	defer func() { <-s.turn }()
	if !s.at.IsZero() && time.Since(s.at) < snapshotLife {
		return s.last, nil
	}
	began := time.Now()
	v, err := read(ctx)
	if err != nil {
		return overviewJSON{}, err
	}
	s.at, s.last = began, overviewBody(v)
	s.last.Rates = s.rates.add(v)
	return s.last, nil
}
