package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Operator is what the API needs of the ledger for whoever looks after it; *outbox.Operator has it. Its errors are those of package outbox.
// It must be safe for concurrent use and return when ctx ends.
type Operator interface {
	Overview(ctx context.Context) (outbox.Overview, error)
	List(ctx context.Context, f outbox.Filter, after string, limit int) (outbox.MessagePage, error)
	Story(ctx context.Context, id int64) (outbox.Story, error)
	Act(ctx context.Context, by outbox.Actor, id int64, c outbox.Command) (outbox.Record, error)
	Bulk(ctx context.Context, by outbox.Actor, b outbox.Bulk) (outbox.BulkResult, error)
	Audit(ctx context.Context, f outbox.AuditFilter) ([]outbox.AuditEntry, error)
	Kept(ctx context.Context, before int64, limit int) ([]outbox.Kept, error)
	RequestRun(ctx context.Context, scope outbox.Scope) (id int64, err error)
	LookupRun(ctx context.Context, id int64) (outbox.Run, error)
	Runs(ctx context.Context, before int64, limit int) ([]outbox.Run, error)
}

const (
	defaultList = 50
	messageRule = "must be a message's id"
)

// adminRoutes are those for operators.
func (s *Server) adminRoutes(admin *gin.RouterGroup) {
	admin.GET("/overview", s.do(s.getOverview))
	admin.GET("/messages", s.do(s.listMessages))
	admin.POST("/messages/bulk", s.do(s.actOnMany))
	admin.GET("/messages/:id", s.do(s.getStory))
	admin.POST("/messages/:id/requeue", s.do(s.act(outbox.ActRequeue)))
	admin.POST("/messages/:id/cancel", s.do(s.act(outbox.ActCancel)))
	admin.POST("/messages/:id/reschedule", s.do(s.act(outbox.ActReschedule)))
	admin.POST("/messages/:id/publish-now", s.do(s.act(outbox.ActPublishNow)))
	admin.GET("/audit", s.do(s.listAudit))
	admin.GET("/unrouted", s.do(s.listUnrouted))
	admin.GET("/orders", s.do(s.findOrders))
	admin.GET("/orders/:no", s.do(s.getOrderWithMessages))
	admin.POST("/reconcile", s.do(s.requestRun))
	admin.GET("/reconcile", s.do(s.listRuns))
	admin.GET("/reconcile/:id", s.do(s.getRun))
}

func (s *Server) listMessages(c *gin.Context) (reply, error) {
	q, err := query(c, append(filterNames(), "limit", "after")...)
	if err != nil {
		return reply{}, err
	}
	f, err := filterOf(q)
	if err != nil {
		return reply{}, err
	}
	limit, err := limitOf(q, outbox.MaxPage)
	if err != nil {
		return reply{}, err
	}
	page, err := s.ops.List(c.Request.Context(), f, q["after"], limit)
	return ok(Body(page)), operatorError(err)
}

// filterNames are the parameters that pick messages.
func filterNames() []string {
	return []string{"topic", "key", "key_prefix", "state", "due_from", "due_to", "error"}
}

// filterOf reads a filter; what is empty counts as absent.
func filterOf(q map[string]string) (outbox.Filter, error) {
	o := &object{faults: &model.Faults{}}
	instant := func(name string) (t time.Time) {
		if q[name] != "" {
			t = o.parseInstant(name, q[name], true)
			o.faults.Check(!t.IsZero() || o.faults.Err() != nil, name, "must not be in the year 1")
		}
		return t
	}
	f := outbox.Filter{
		Topic: q["topic"], Key: q["key"], KeyPrefix: q["key_prefix"], State: outbox.State(q["state"]), Error: q["error"],
		DueFrom: instant("due_from"), DueBefore: instant("due_to"),
	}
	return f, o.faults.Err()
}

// limitOf is how many rows a page shall have.
func limitOf(q map[string]string, most int) (int, error) {
	if q["limit"] == "" {
		return defaultList, nil
	}
	n, err := strconv.Atoi(q["limit"])
	if err != nil || n < 1 || n > most {
		return 0, model.Invalid("limit", "must be 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

func (s *Server) getStory(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	id, err := pathNumber(c, messageRule)
	if err != nil {
		return reply{}, err
	}
	story, err := s.ops.Story(c.Request.Context(), id)
	return ok(Body(story)), operatorError(err)
}

// act does something to one message.
func (s *Server) act(a outbox.Action) func(c *gin.Context) (reply, error) {
	return func(c *gin.Context) (reply, error) {
		if _, err := query(c); err != nil {
			return reply{}, err
		}
		id, err := pathNumber(c, messageRule)
		if err != nil {
			return reply{}, err
		}
		in, err := readOptional(c)
		if err != nil {
			return reply{}, err
		}
		command := outbox.Command{Action: a}
		if a == outbox.ActReschedule {
			in.reschedule(&command)
		}
		if err := in.end(); err != nil {
			return reply{}, err
		}
		r, err := s.ops.Act(c.Request.Context(), actor(c), id, command)
		return ok(Body(r)), operatorError(err)
	}
}

// reschedule is where a message shall be moved to.
func (o *object) reschedule(c *outbox.Command) {
	var given bool
	c.DueAt, c.Delay, given = o.due()
	o.faults.Check(given, "due_at", "is required, or delay")
}

// actOnMany does something to all messages that a filter picks.
func (s *Server) actOnMany(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	b := outbox.Bulk{Command: outbox.Command{Action: outbox.Action(in.text("action"))}, Limit: defaultBulk, DryRun: in.flag("dry_run")}
	picks := in.texts("filter")
	in.faults.Check(len(picks) > 0, "filter", "is required, with something to pick messages by")
	b.After, _ = in.optionalText("after")
	b.Began = in.optionalInstant("began_at")
	if _, given := in.fields["limit"]; given {
		b.Limit = int(in.integer("limit"))
	}
	if b.Action == outbox.ActReschedule {
		in.reschedule(&b.Command)
	}
	q := map[string]string{}
	for _, name := range filterNames() {
		value, given := picks[name]
		// In a query an empty value asks for nothing; here it would be a message more than was meant.
		in.faults.Check(!given || value != "", "filter."+name, "must not be empty: leave it out")
		q[name] = value
		delete(picks, name)
	}
	for name := range picks {
		in.faults.Add("filter."+shown(name), "is not a field of this request")
	}
	if err := in.end(); err != nil {
		return reply{}, err
	}
	if b.Filter, err = filterOf(q); err != nil {
		return reply{}, err
	}
	res, err := s.ops.Bulk(c.Request.Context(), actor(c), b)
	if err != nil && res.Changed > 0 {
		// The client learns what has happened, and meets the error again where it goes on.
		s.cfg.Log.WarnContext(c.Request.Context(), "a bulk has stopped halfway", "changed", res.Changed, "error", err)
		err = nil
	}
	return ok(Body(res)), operatorError(err)
}

const defaultBulk = 1000

func actor(c *gin.Context) outbox.Actor {
	name, via := actorOf(c)
	return outbox.Actor{Name: name, Via: via}
}

// operatorError is err in the API's own words; nil stays nil.
func operatorError(err error) error {
	_, protected := errors.AsType[*outbox.ProtectedError](err)
	switch {
	case err == nil || protected || errors.Is(err, outbox.ErrInvalidMessage) || errors.Is(err, outbox.ErrWrongState):
		return err
	case errors.Is(err, outbox.ErrNoMessage):
		return errNoMessageID
	}
	return ledgerError(err)
}
