package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// products is how many there are, each with stock for everything that can be ordered in a day.
const (
	products = 12
	units    = 1_000_000
)

// load are customers who place orders, pay, cancel and ask for more time.
type load struct {
	shop    *shop
	ledger  *Ledger
	random  *rand.Rand
	rate    float64
	late    atomic.Bool // no order is placed any more that would keep everybody waiting
	refused sync.Map    // what was answered that no client should be: text -> true
}

func sku(i int) string { return fmt.Sprintf("SKU-%02d", i+1) }

func (l *load) preload(ctx context.Context) error {
	for i := range products {
		if err := l.shop.stock(ctx, sku(i), units); err != nil {
			return err
		}
		l.ledger.Stocked(sku(i), units)
	}
	return nil
}

// run places orders until placing ends, and returns when the last customer has gone. All of them go at once when ctx ends.
func (l *load) run(ctx, placing context.Context) {
	var customers sync.WaitGroup
	defer customers.Wait()
	start := time.Now()
	for n := 0; ; n++ {
		at := start.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
		if pause(placing, time.Until(at)) != nil {
			return
		}
		c := l.customer(n)
		l.ledger.Add(c.order)
		customers.Go(func() { c.shops(ctx) })
	}
}

// habit is what a customer does about an order, in hundredths of all customers.
type habit int

const (
	leaves habit = iota
	pays
	paysAtDue // in the same moment in which the order is closed
	paysTwice
	cancels
	extends
	extendsAndPays
)

func habitAt(of100 int) habit {
	for _, h := range []struct {
		share int
		habit
	}{{35, leaves}, {20, pays}, {10, paysAtDue}, {3, paysTwice}, {12, cancels}, {12, extends}} {
		if of100 < h.share {
			return h.habit
		}
		of100 -= h.share
	}
	return extendsAndPays
}

// customer places one order and does one thing more.
type customer struct {
	*load

	order  *Order
	items  []item
	habit  habit
	after  float64       // of the time limit: when
	longer time.Duration // how much more time
}

// customer is the nth one. It is to be called by one goroutine.
func (l *load) customer(n int) *customer {
	c := &customer{
		load:   l,
		order:  &Order{User: fmt.Sprintf("user-%06d", n), Kind: "normal"},
		habit:  habitAt(l.random.IntN(100)),
		after:  0.1 + 0.8*l.random.Float64(),
		longer: time.Second + time.Duration(l.random.Int64N(int64(5*time.Second))),
	}
	switch kind := l.random.IntN(10); {
	case kind < 3:
		c.order.Kind = "flash"
	case kind < 6 && !l.late.Load():
		c.order.Kind = "presale"
	}
	for _, i := range l.random.Perm(products)[:1+l.random.IntN(3)] {
		c.items = append(c.items, item{SKU: sku(i), Quantity: 1 + l.random.Int64N(3), Price: int64(100 * (i + 1))})
	}
	return c
}

func (c *customer) shops(ctx context.Context) {
	status, a, err := c.shop.place(ctx, c.order.User, c.order.Kind, c.items)
	if err != nil || status != http.StatusCreated {
		c.ledger.note(func(n *Counts) { n.Unknown++ })
		c.odd("place", status, err)
		return
	}
	c.ledger.note(func(n *Counts) {
		n.Placed++
		c.order.No, c.order.Total, c.order.Due = a.No, a.Total, a.DueAt
	})
	left := time.Until(a.DueAt)
	if c.habit == paysAtDue {
		c.after = 1
	}
	if c.habit == leaves || pause(ctx, time.Duration(c.after*float64(left))) != nil {
		return
	}
	switch c.habit {
	case leaves:
	case pays, paysAtDue:
		c.pays(ctx, "pay-"+c.order.User)
	case paysTwice:
		c.pays(ctx, "pay-"+c.order.User)
		c.pays(ctx, "again-"+c.order.User)
	case cancels:
		status, err := c.shop.cancel(ctx, c.order.No)
		if err == nil && status == http.StatusOK {
			c.ledger.note(func(n *Counts) {
				n.Canceled++
				c.order.Canceled = true
			})
		}
		c.odd("cancel", status, err)
	case extends, extendsAndPays:
		c.extends(ctx)
	}
}

func (c *customer) pays(ctx context.Context, payment string) {
	status, err := c.shop.pay(ctx, c.order.No, payment, c.order.Total)
	if err == nil && status == http.StatusOK {
		c.ledger.note(func(n *Counts) {
			n.Paid++
			c.order.Paid = append(c.order.Paid, payment)
		})
	}
	c.odd("pay", status, err)
}

func (c *customer) extends(ctx context.Context) {
	due := c.order.Due.Add(c.longer)
	status, a, err := c.shop.reschedule(ctx, c.order.No, due)
	if err == nil {
		c.ledger.note(func(n *Counts) {
			n.Moves++
			switch status {
			case http.StatusOK:
				n.Rescheduled++
				c.order.Due = a.DueAt
			case http.StatusNotFound, http.StatusMethodNotAllowed:
				n.NoRoute++
			}
		})
	}
	if time.Until(due) > askLimit { // else it may have passed when the last attempt was made
		c.odd("reschedule", status, err)
	}
	if c.habit == extendsAndPays && pause(ctx, c.longer) == nil {
		c.pays(ctx, "pay-"+c.order.User)
	}
}

// odd notes an answer that says the client was wrong, which it never is: 409 is for those who came too late.
func (c *customer) odd(what string, status int, err error) {
	if err == nil && status >= 400 && status != http.StatusConflict {
		c.refused.Store(fmt.Sprintf("%s: %d", what, status), true)
	}
}

func (l *load) oddities() []string {
	var out []string
	l.refused.Range(func(key, _ any) bool {
		if s, ok := key.(string); ok {
			out = append(out, s)
		}
		return true
	})
	slices.Sort(out)
	return out
}
