package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Order is an order as of one reading. A time that has not come is zero.
type Order struct {
	No          string    `json:"no"`
	Kind        string    `json:"kind"` // normal, flash or presale
	User        string    `json:"user"`
	Status      string    `json:"status"`       // pending, paid or closed
	CloseReason string    `json:"close_reason"` // timeout or user; empty while it is not closed
	Items       []Item    `json:"items"`
	Total       int64     `json:"total"`    // in minor units
	Refunded    int64     `json:"refunded"` // in minor units
	DueAt       time.Time `json:"due_at"`
	CreatedAt   time.Time `json:"created_at"`
	RemindedAt  time.Time `json:"reminded_at"`
	PaidAt      time.Time `json:"paid_at"`
	ClosedAt    time.Time `json:"closed_at"`
}

// Item is one line of an order.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Price    int64  `json:"price"` // of one unit, in minor units
}

// Draft is an order to place.
type Draft struct {
	Kind  string `json:"kind"`
	User  string `json:"user"`
	Items []Item `json:"items"`
}

// OrderFilter picks orders. The zero value is the newest 20 of all.
type OrderFilter struct {
	User   string
	Status string
	Limit  int    // 0: the server's default
	After  string // a page's Next
}

// OrderPage is some of the orders that were asked for, the newest first. Next is empty on the last page.
type OrderPage struct {
	Orders []Order `json:"orders"`
	Next   string  `json:"next"`
}

// PlaceOrder places an order. An idempotency key, which belongs to the user for 24 hours, makes it safe to repeat; without one it is sent once.
func (c *Client) PlaceOrder(ctx context.Context, d Draft, idempotencyKey string) (o Order, err error) {
	header := http.Header{}
	if idempotencyKey != "" {
		header.Set("Idempotency-Key", idempotencyKey)
	}
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/orders", header: header, body: d, once: idempotencyKey == "", into: &o})
	return o, err
}

// GetOrder reads an order.
func (c *Client) GetOrder(ctx context.Context, no string) (o Order, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: path("v1", "orders", no), into: &o})
	return o, err
}

// ListOrders reads a page of orders.
func (c *Client) ListOrders(ctx context.Context, f OrderFilter) (p OrderPage, err error) {
	q := queryOf(map[string]string{"user": f.User, "status": f.Status, "after": f.After})
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/orders", query: q, into: &p})
	return p, err
}

// Orders reads all orders that were asked for, page by page, as far as the loop goes. After an error there is no more.
func (c *Client) Orders(ctx context.Context, f OrderFilter) iter.Seq2[Order, error] {
	return func(yield func(Order, error) bool) {
		for {
			p, err := c.ListOrders(ctx, f)
			if err != nil {
				yield(Order{}, err)
				return
			}
			for _, o := range p.Orders {
				if !yield(o, nil) {
					return
				}
			}
			if f.After = p.Next; p.Next == "" {
				return
			}
		}
	}
}

// PayOrder records a payment, once by its id however often it is sent. Money that the order cannot take is no error but a refund: look
// at Status and Refunded.
func (c *Client) PayOrder(ctx context.Context, no, paymentID string, amount int64) (o Order, err error) {
	body := struct {
		PaymentID string `json:"payment_id"`
		Amount    int64  `json:"amount"`
	}{paymentID, amount}
	_, err = c.do(ctx, call{method: http.MethodPost, path: path("v1", "orders", no, "pay"), body: body, into: &o})
	return o, err
}

// CancelOrder closes a pending order for its user. One that is closed already is no error; one that is paid is OrderPaid.
func (c *Client) CancelOrder(ctx context.Context, no string) (o Order, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: path("v1", "orders", no, "cancel"), into: &o})
	return o, err
}

// ExtendOrder gives a pending order another due time.
func (c *Client) ExtendOrder(ctx context.Context, no string, due time.Time) (o Order, err error) {
	body := struct {
		DueAt time.Time `json:"due_at"`
	}{due}
	_, err = c.do(ctx, call{method: http.MethodPatch, path: path("v1", "orders", no, "due"), body: body, into: &o})
	return o, err
}
