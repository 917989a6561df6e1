package ordering_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// crowd runs fn for 0 to n-1, many at once.
func crowd(n int, fn func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// placeMany places n orders, each of one of the products, and lets their time come.
func (s *shop) placeMany(n int, quantity int64, skus ...string) ([]model.Order, []outbox.Delivery) {
	s.t.Helper()
	for _, sku := range skus {
		s.stock(sku, int64(n)*quantity)
	}
	orders, deliveries := make([]model.Order, n), make([]outbox.Delivery, n)
	crowd(n, func(i int) {
		var err error
		if orders[i], err = s.Place(s.t.Context(), draft(skus[i%len(skus)], quantity), ""); err != nil {
			s.t.Error(err)
		}
	})
	s.comeDue()
	crowd(n, func(i int) { deliveries[i] = s.delivery(orders[i].No) })
	return orders, deliveries
}

// Scenario 34: pay and expire in the same millisecond.
func TestScenario34_PayAndExpireHaveOneWinner(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := newShop(t, ordering.Config{})
	orders, deliveries := s.placeMany(n, 2, "p0", "p1", "p2", "p3", "p4", "p5", "p6")
	crowd(n, func(i int) {
		no := orders[i].No
		pay := func(id string) func() {
			return func() {
				if _, err := s.Pay(t.Context(), no, model.Payment{ID: id, Amount: orders[i].Total}); err != nil {
					t.Error(err)
				}
			}
		}
		expire := func() {
			outcome, err := s.handle(t.Context(), deliveries[i])
			if err != nil {
				t.Error(err)
			}
			if outcome != outbox.OutcomeDone && outcome != outbox.OutcomeDuplicate && outcome != outbox.OutcomeCanceled {
				t.Error("expire ended as", outcome)
			}
		}
		second := fmt.Sprint("b-", no)
		if i%2 == 0 {
			second = fmt.Sprint("a-", no) // the provider tells of one payment twice
		}
		together(pay("a-"+no), expire, pay(second), expire, expire)
	})

	s.requireConserved()
	paid := s.number("SELECT COUNT(*) FROM orders WHERE status = 'paid'")
	closed := s.number("SELECT COUNT(*) FROM orders WHERE status = 'closed' AND close_reason = 'timeout'")
	require.Equal(t, int64(n), paid+closed, "one winner each")
	require.Equal(t, 2*paid, s.number("SELECT SUM(sold) FROM products"))
	require.Zero(t, s.number("SELECT SUM(reserved) FROM products"))
	require.Equal(t, int64(n), s.number("SELECT SUM(version - 1) FROM orders"), "one transition each")
	require.Equal(t, closed, s.number("SELECT COUNT(*) FROM effects"), "an effect exactly where the message was not withdrawn")
	require.Equal(t, int64(n+n/2), s.number("SELECT COUNT(*) FROM payments"), "no money is forgotten")
	require.Equal(t, int64(n+n/2)-paid, s.number("SELECT COUNT(*) FROM refunds"))
	require.Positive(t, paid, "no race took place: nobody paid")
	require.Positive(t, closed, "no race took place: nothing expired")
}

// Scenario 35: user cancel, timeout, reconciler's republish and duplicate delivery at once.
func TestScenario35_StockComesBackExactlyOnce(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newShop(t, ordering.Config{})
	orders, deliveries := s.placeMany(n, 3, "hot")
	crowd(n, func(i int) {
		no := orders[i].No
		cancel := func() {
			o, err := s.Cancel(t.Context(), no)
			if err != nil || o.Status != model.Closed {
				t.Error(o.Status, err)
			}
		}
		deliver := func() {
			if _, err := s.handle(t.Context(), deliveries[i]); err != nil {
				t.Error(err)
			}
		}
		republish := func() { // what the reconciler does to a row that it takes for lost
			_, err := s.db.ExecContext(t.Context(), `UPDATE outbox_messages SET state = 'scheduled', revision = revision + 1,
				repairs = repairs + 1, available_at = UTC_TIMESTAMP(6) WHERE id = ? AND state IN ('scheduled', 'published')`, deliveries[i].ID)
			if err != nil && !outbox.IsRetryable(err) {
				t.Error(err)
			}
		}
		together(cancel, deliver, republish, deliver)
	})

	s.requireConserved()
	require.Equal(t, model.Product{SKU: "hot", Name: "Product hot", Available: 3 * n}, s.product("hot"))
	require.Equal(t, int64(n), s.number("SELECT COUNT(*) FROM stock_movements WHERE direction = 'release' AND quantity = 3"))
	user := s.number("SELECT COUNT(*) FROM orders WHERE status = 'closed' AND close_reason = 'user'")
	timeout := s.number("SELECT COUNT(*) FROM orders WHERE status = 'closed' AND close_reason = 'timeout'")
	require.Equal(t, int64(n), user+timeout)
	require.Equal(t, timeout, s.number("SELECT COUNT(*) FROM effects"))
	require.Positive(t, user, "no race took place: nobody canceled first")
	require.Positive(t, timeout, "no race took place: nothing expired first")
	for _, o := range orders {
		_, err := s.store.Lookup(t.Context(), model.TopicExpire, o.No)
		require.ErrorIs(t, err, outbox.ErrNoMessage, "no message came back to life")
	}
}
