package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// requestRun asks for a run of the reconciler: a worker makes it. While the same is waiting already, that is the answer.
func (s *Server) requestRun(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	in, err := readOptional(c)
	if err != nil {
		return reply{}, err
	}
	scope := outbox.Scope{Audit: in.flag("audit"), DryRun: in.flag("dry_run")}
	if err := in.end(); err != nil {
		return reply{}, err
	}
	id, err := s.ops.RequestRun(c.Request.Context(), scope)
	if err != nil {
		return reply{}, ledgerError(err)
	}
	no := strconv.FormatInt(id, 10)
	return accepted("/v1/admin/reconcile/"+no, requestedJSON{no}), nil
}

func (s *Server) getRun(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	id, err := pathNumber(c, "must be the whole number that the request for the run was answered with")
	if err != nil {
		return reply{}, err
	}
	run, err := s.ops.LookupRun(c.Request.Context(), id)
	if errors.Is(err, outbox.ErrNoRun) {
		return reply{}, errNoRun
	}
	if err != nil {
		return reply{}, ledgerError(err)
	}
	return ok(runBody(run)), nil
}

// ledgerError tells a ledger that cannot answer for now from one that cannot answer.
func ledgerError(err error) error {
	_, network := errors.AsType[net.Error](err)
	if network || outbox.IsOutage(err) || outbox.IsRetryable(err) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return err
}
