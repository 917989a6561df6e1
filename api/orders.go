package api

import (
	"cmp"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
)

func (s *Server) placeOrder(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	key, err := idempotencyKey(c)
	if err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	d := model.Draft{Kind: model.Kind(in.text("kind")), User: in.text("user")}
	for _, item := range in.objects("items") {
		d.Items = append(d.Items, model.Item{
			SKU: item.text("sku"), Quantity: item.integer("quantity"), Price: item.integer("price"),
		})
		item.close()
	}
	if err := in.end(); err != nil {
		return reply{}, err
	}
	if user := userOf(c); user != "" && d.User != user {
		return reply{}, errOtherUser
	}
	o, err := s.orders.Place(c.Request.Context(), d, key)
	if err != nil {
		return reply{}, err
	}
	c.Set(aboutOrder, o.No)
	return created("/v1/orders/"+o.No, orderBody(o)), nil
}

// idempotencyKey is the header's value, taken as it stands; empty if there is none.
func idempotencyKey(c *gin.Context) (string, error) {
	const header = "Idempotency-Key"
	values := c.Request.Header.Values(header)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", model.Invalid(header, "must be given once")
	}
	if !model.ValidKey(values[0]) {
		return "", model.Invalid(header, model.KeyRule)
	}
	return values[0], nil
}

func (s *Server) getOrder(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	no, err := pathID(c, "no")
	if err != nil {
		return reply{}, err
	}
	o, err := s.orders.Order(c.Request.Context(), no)
	return ok(orderBody(o)), cmp.Or(err, theirs(c, o))
}

func (s *Server) listOrders(c *gin.Context) (reply, error) {
	q, err := query(c, "user", "status", "limit", "after")
	if err != nil {
		return reply{}, err
	}
	f := model.OrderFilter{User: q["user"], Status: model.Status(q["status"]), After: q["after"], Limit: model.DefaultPage}
	if user := userOf(c); user != "" {
		if f.User != "" && f.User != user {
			return reply{}, errOtherUser
		}
		f.User = user
	}
	if q["limit"] != "" {
		if f.Limit, err = strconv.Atoi(q["limit"]); err != nil {
			f.Limit = 0 // out of range, like anything that is no number
		}
	}
	orders, next, err := s.orders.Orders(c.Request.Context(), f)
	return ok(pageBody(orders, next)), err
}

func (s *Server) payOrder(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	no, err := pathID(c, "no")
	if err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	p := model.Payment{ID: in.text("payment_id"), Amount: in.integer("amount")}
	if err := in.end(); err != nil {
		return reply{}, err
	}
	o, err := s.orders.Pay(c.Request.Context(), no, p)
	return ok(orderBody(o)), err
}

func (s *Server) cancelOrder(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	no, err := pathID(c, "no")
	if err != nil {
		return reply{}, err
	}
	if err := readNothing(c); err != nil {
		return reply{}, err
	}
	if err := s.own(c, no); err != nil {
		return reply{}, err
	}
	o, err := s.orders.Cancel(c.Request.Context(), no)
	return ok(orderBody(o)), err
}

func (s *Server) extendOrder(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	no, err := pathID(c, "no")
	if err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	due := in.instant("due_at")
	if err := in.end(); err != nil {
		return reply{}, err
	}
	o, err := s.orders.Extend(c.Request.Context(), no, due)
	return ok(orderBody(o)), err
}
