package ordering_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"pgregory.net/rapid"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// ledger is what the property test believes about one product and its orders.
type ledger struct {
	product model.Product
	orders  []*model.Order
}

func (l *ledger) finish(o *model.Order, to model.Status) {
	o.Status = to
	units := o.Items[0].Quantity
	l.product.Reserved -= units
	if to == model.Paid {
		l.product.Sold += units
	} else {
		l.product.Available += units
	}
}

// tried counts the edges that have been tried, but for those that not every order has.
func tried(edges map[string]int) int {
	n := 0
	for name := range edges {
		if strings.Contains(name, " ") && !strings.Contains(name, "behind") {
			n++
		}
	}
	return n
}

// Scenario 36: every edge of the state machine, in random order.
func TestScenario36_UnitsAreConservedOnEveryPath(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	edges := map[string]int{}
	var run atomic.Int64
	random := func(rt *rapid.T) {
		sku := fmt.Sprint("sku", run.Add(1))
		l := &ledger{product: model.Product{SKU: sku, Name: "Product " + sku}}
		set := func(units int64) {
			p, err := s.SetStock(t.Context(), model.Stocking{SKU: sku, Name: l.product.Name, Stock: units})
			require.NoError(rt, err)
			l.product.Available = units
			require.Equal(rt, l.product, p)
		}
		set(10)
		pick := func(rt *rapid.T) *model.Order {
			if len(l.orders) == 0 {
				rt.Skip("no order yet")
			}
			return rapid.SampledFrom(l.orders).Draw(rt, "order")
		}
		edge := func(name string, o *model.Order) { edges[string(o.Status)+" "+name]++ }
		pay := func(rt *rapid.T, o *model.Order, id string) {
			got, err := s.Pay(t.Context(), o.No, model.Payment{ID: id, Amount: o.Total})
			require.NoError(rt, err)
			require.Equal(rt, o.Status, got.Status)
			require.Equal(rt, o.Refunded, got.Refunded)
		}
		payments := 0
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				require.Equal(rt, l.product, s.product(sku))
			},
			"set stock": func(rt *rapid.T) { set(rapid.Int64Range(0, 20).Draw(rt, "units")) },
			"place": func(rt *rapid.T) {
				units := rapid.Int64Range(1, 8).Draw(rt, "units")
				o, err := s.Place(t.Context(), draft(sku, units), "")
				if units > l.product.Available {
					edges["refuse"]++
					var short *model.OutOfStockError
					require.ErrorAs(rt, err, &short)
					return
				}
				edges["place"]++
				require.NoError(rt, err)
				l.product.Available -= units
				l.product.Reserved += units
				l.orders = append(l.orders, &o)
			},
			"pay": func(rt *rapid.T) {
				o := pick(rt)
				edge("pay", o)
				if o.Status == model.Pending {
					l.finish(o, model.Paid)
				} else {
					o.Refunded += o.Total
				}
				payments++
				id := fmt.Sprint(o.No, "-", payments)
				pay(rt, o, id)
				pay(rt, o, id) // told twice
			},
			"pay a wrong amount": func(rt *rapid.T) {
				o := pick(rt)
				edge("wrong amount", o)
				_, err := s.Pay(t.Context(), o.No, model.Payment{ID: "wrong", Amount: o.Total + 1})
				require.ErrorIs(rt, err, model.ErrWrongAmount)
			},
			"cancel": func(rt *rapid.T) {
				o := pick(rt)
				edge("cancel", o)
				got, err := s.Cancel(t.Context(), o.No)
				if o.Status == model.Paid {
					require.ErrorIs(rt, err, model.ErrPaid)
					return
				}
				require.NoError(rt, err)
				if o.Status == model.Pending {
					l.finish(o, model.Closed)
					o.CloseReason = model.User
				}
				require.Equal(rt, model.Closed, got.Status)
				require.Equal(rt, o.CloseReason, got.CloseReason)
			},
			"extend": func(rt *rapid.T) {
				o := pick(rt)
				edge("extend", o)
				due := o.CreatedAt.Add(time.Duration(rapid.Int64Range(1, 1000).Draw(rt, "hours")) * time.Hour)
				got, err := s.Extend(t.Context(), o.No, due)
				switch o.Status {
				case model.Paid:
					require.ErrorIs(rt, err, model.ErrPaid)
				case model.Closed:
					require.ErrorIs(rt, err, model.ErrClosed)
				case model.Pending:
					require.NoError(rt, err)
					require.Equal(rt, due, got.DueAt)
					require.Equal(rt, o.DueAt, got.AsPlaced().DueAt)
				}
			},
			"expire": func(rt *rapid.T) {
				o := pick(rt)
				edge("expire", o)
				outcome := s.expire(o.No)
				if o.Status == model.Pending {
					require.Equal(rt, outbox.OutcomeDone, outcome)
					l.finish(o, model.Closed)
					o.CloseReason = model.Timeout
				} else {
					require.NotEqual(rt, outbox.OutcomeDone, outcome)
				}
				require.Equal(rt, o.CloseReason, s.order(o.No).CloseReason)
			},
			"expire behind the guard's back": func(rt *rapid.T) {
				o := pick(rt)
				if !o.Status.Final() {
					rt.Skip("the guard lets this one pass")
				}
				edge("expire behind the guard's back", o)
				d := s.delivery(o.No)
				require.NoError(rt, s.gorm.Transaction(func(tx *gorm.DB) error { return s.Expire(t.Context(), tx, d) }))
				require.Equal(rt, o.Status, s.order(o.No).Status)
			},
		})
		require.Equal(rt, l.product.Available+l.product.Reserved+l.product.Sold,
			s.number("SELECT SUM(quantity) FROM stock_movements WHERE sku = ? AND direction = 'adjust'", sku))
	}
	const statuses, actions = 3, 5
	for round := 0; round == 0 || round < 5 && tried(edges) < statuses*actions; round++ { // chance may leave out an edge
		rapid.Check(t, random)
	}
	for _, status := range []model.Status{model.Pending, model.Paid, model.Closed} {
		for _, name := range []string{"pay", "wrong amount", "cancel", "extend", "expire"} {
			require.NotZero(t, edges[string(status)+" "+name], "%s %s was never tried", status, name)
		}
	}
	require.NotZero(t, edges["refuse"])
	s.exec("DELETE FROM effects") // doubled on purpose above
	s.requireConserved()
}
