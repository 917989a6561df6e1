package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
)

// readyTimeout is what a probe may wait for the database.
const readyTimeout = 2 * time.Second

// ErrNoTables is what a readiness check returns when the database answers but lacks the tables.
var ErrNoTables = errors.New("api: the database lacks tables: run duebox migrate")

type statusBody struct {
	Status string `json:"status"`
}

// health says that the process runs; it depends on nothing.
func (s *Server) health(*gin.Context) (reply, error) { return ok(statusBody{"ok"}), nil }

// readiness says whether requests should be sent here: it depends on the database alone, never on the broker.
func (s *Server) readiness(c *gin.Context) (reply, error) {
	if s.draining.Load() {
		return reply{}, fmt.Errorf("%w: the server is draining", model.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		return reply{}, fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return ok(statusBody{"ready"}), nil
}
