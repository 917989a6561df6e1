package api

import (
	"errors"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// askDelivery says whether a delivery may take effect now. It waits for one that is due within a second.
func (s *Server) askDelivery(c *gin.Context) (reply, error) {
	q, err := query(c, "generation", "store")
	if err != nil {
		return reply{}, err
	}
	d := outbox.Delivery{Store: q["store"]}
	if d.ID, err = pathNumber(c, idRule); err != nil {
		return reply{}, err
	}
	if d.Generation, err = number("generation", q["generation"], generationRule); err != nil {
		return reply{}, err
	}
	if err := s.messages.MayRun(c.Request.Context(), d); err != nil {
		return reply{}, deliveryError(err)
	}
	return ok(deliveryBody(d, "run")), nil
}

const (
	idRule         = "must be the whole number in the delivery's header duebox-id"
	generationRule = "must be the whole number in the delivery's header duebox-generation"
)

// finishDelivery marks a message done. The order service's are marked by their own effects only.
func (s *Server) finishDelivery(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	id, err := pathNumber(c, idRule)
	if err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	d := outbox.Delivery{ID: id, Generation: in.integer("generation")}
	in.faults.Check(d.Generation > 0, "generation", generationRule)
	d.Store, _ = in.optionalText("store")
	if err := in.end(); err != nil {
		return reply{}, err
	}
	ctx := c.Request.Context()
	r, err := s.messages.LookupID(ctx, id)
	if err != nil {
		return reply{}, deliveryError(err)
	}
	if model.IsOrderTopic(r.Topic) {
		return reply{}, errOrderTopic
	}
	if err := s.messages.Finish(ctx, d); err != nil {
		return reply{}, deliveryError(err)
	}
	return ok(deliveryBody(d, string(outbox.Done))), nil
}

func deliveryError(err error) error {
	if _, ok := errors.AsType[*outbox.RefusedError](err); ok {
		return err
	}
	if errors.Is(err, outbox.ErrNoMessage) {
		return errNoDelivery
	}
	return ledgerError(err)
}
