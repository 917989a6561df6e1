package api

import (
	"context"
	"errors"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// maxList is the most rows on a page of what is listed by ids.
const maxList = 100

// position is where a list by ids goes on, and how many rows it shall have.
func position(q map[string]string) (before int64, limit int, err error) {
	limit, err = limitOf(q, maxList)
	if err == nil && q["after"] != "" {
		before, err = number("after", q["after"], "must be the next of another page")
	}
	return before, limit, err
}

func (s *Server) listAudit(c *gin.Context) (reply, error) {
	q, err := query(c, "message_id", "actor", "limit", "after")
	if err != nil {
		return reply{}, err
	}
	f := outbox.AuditFilter{Actor: q["actor"]}
	if q["message_id"] != "" {
		if f.MessageID, err = number("message_id", q["message_id"], messageRule); err != nil {
			return reply{}, err
		}
	}
	var limit int
	if f.Before, limit, err = position(q); err != nil {
		return reply{}, err
	}
	f.Limit = limit + 1
	entries, err := s.ops.Audit(c.Request.Context(), f)
	if err != nil {
		return reply{}, operatorError(err)
	}
	return ok(auditPage(entries, limit)), nil
}

func (s *Server) listUnrouted(c *gin.Context) (reply, error) { return newest(c, s.ops.Kept, keptPage) }

func (s *Server) listRuns(c *gin.Context) (reply, error) { return newest(c, s.ops.Runs, runPage) }

// newest answers with a page of what read returns, the newest first.
func newest[T, P any](c *gin.Context, read func(ctx context.Context, before int64, limit int) ([]T, error), page func(all []T, limit int) P) (reply, error) {
	q, err := query(c, "limit", "after")
	if err != nil {
		return reply{}, err
	}
	before, limit, err := position(q)
	if err != nil {
		return reply{}, err
	}
	all, err := read(c.Request.Context(), before, limit+1)
	if err != nil {
		return reply{}, operatorError(err)
	}
	return ok(page(all, limit)), nil
}

// findOrders is listOrders of all users, and by number.
func (s *Server) findOrders(c *gin.Context) (reply, error) {
	q, err := query(c, "no", "user", "status", "limit", "after")
	if err != nil {
		return reply{}, err
	}
	f := model.OrderFilter{User: q["user"], Status: model.Status(q["status"]), After: q["after"]}
	if f.Limit, err = limitOf(q, model.MaxPage); err != nil {
		return reply{}, err
	}
	if q["no"] == "" {
		orders, next, err := s.orders.Orders(c.Request.Context(), f)
		return ok(pageBody(orders, next)), err
	}
	if err := f.Validate(); err != nil {
		return reply{}, err
	}
	o, err := s.orders.Order(c.Request.Context(), q["no"])
	var found []model.Order
	switch {
	case errors.Is(err, model.ErrNoOrder):
	case err != nil:
		return reply{}, err
	case (f.User == "" || f.User == o.User) && (f.Status == "" || f.Status == o.Status) && (f.After == "" || o.No < f.After):
		found = append(found, o)
	}
	return ok(pageBody(found, "")), nil
}

// getOrderWithMessages shows an order with the messages that close it and remind of it, null where there is none any more.
func (s *Server) getOrderWithMessages(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	no, err := pathID(c, "no")
	if err != nil {
		return reply{}, err
	}
	ctx := c.Request.Context()
	o, err := s.orders.Order(ctx, no)
	if err != nil {
		return reply{}, err
	}
	body := orderWithMessagesJSON{Order: orderBody(o)}
	r, err := s.messages.LookupID(ctx, o.MessageID)
	if err == nil && r.Topic == model.TopicExpire && r.Key == no {
		body.Messages.Expire = listedBody(r)
	}
	if err != nil && !errors.Is(err, outbox.ErrNoMessage) {
		return reply{}, ledgerError(err)
	}
	// The order does not know of its reminder: it is live, or was among the last of its shard to end.
	reminders, err := s.ops.List(ctx, outbox.Filter{Topic: model.TopicRemind, Key: no}, "", 1)
	if err != nil {
		return reply{}, operatorError(err)
	}
	for _, r := range slices.Backward(reminders.Messages) {
		body.Messages.Remind = listedBody(r)
	}
	return ok(body), nil
}
