package ordering_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func TestPay_SellsAndWithdrawsTheMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	paid, err := s.Pay(t.Context(), o.No, model.Payment{ID: "p1", Amount: 500})
	require.NoError(t, err)

	require.Equal(t, model.Paid, paid.Status)
	require.False(t, paid.PaidAt.Before(o.CreatedAt))
	require.Empty(t, cmp.Diff(o, paid, cmpopts.IgnoreFields(model.Order{}, "Status", "PaidAt")))
	require.Equal(t, paid, s.order(o.No))
	_, err = s.store.Lookup(t.Context(), model.TopicExpire, o.No)
	require.ErrorIs(t, err, outbox.ErrNoMessage)
	require.Equal(t, outbox.OutcomeCanceled, s.expire(o.No))
	require.Equal(t, model.Product{SKU: "a", Name: "Product a", Available: 3, Sold: 2}, s.product("a"))
	require.Equal(t, int64(2), s.number("SELECT version FROM orders WHERE no = ?", o.No))
	s.requireConserved()
}

func TestPay_TheSamePaymentAgainChangesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	p := model.Payment{ID: "p1", Amount: 250}
	o := s.place(draft("a", 1))
	first, err := s.Pay(t.Context(), o.No, p)
	require.NoError(t, err)
	before := s.rows()
	again, err := s.Pay(t.Context(), o.No, p)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Empty(t, cmp.Diff(before, s.rows()))
}

func TestPay_MoneyThatCannotBeTakenIsRefunded(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	for name, finish := range map[string]func(no string) model.Status{
		"paid": func(no string) model.Status {
			_, err := s.Pay(t.Context(), no, model.Payment{ID: "first-" + no, Amount: 250})
			require.NoError(t, err)
			return model.Paid
		},
		"canceled": func(no string) model.Status {
			_, err := s.Cancel(t.Context(), no)
			require.NoError(t, err)
			return model.Closed
		},
		"expired": func(no string) model.Status {
			require.Equal(t, outbox.OutcomeDone, s.expire(no))
			return model.Closed
		},
	} {
		o := s.place(draft("a", 1))
		status := finish(o.No)
		before := s.order(o.No)
		stock := s.product("a")
		for _, id := range []string{"late-" + o.No, "later-" + o.No, "late-" + o.No} { // the third is the first again
			_, err := s.Pay(t.Context(), o.No, model.Payment{ID: id, Amount: 250})
			require.NoError(t, err, name)
		}
		after := s.order(o.No)
		require.Equal(t, status, after.Status, name)
		require.Equal(t, int64(500), after.Refunded, name)
		require.Empty(t, cmp.Diff(before, after, cmpopts.IgnoreFields(model.Order{}, "Refunded")), name)
		require.Equal(t, stock, s.product("a"), name)
	}
	s.requireConserved()
}

func TestPay_RefusedWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	paid, pending, closed := s.place(draft("a", 1)), s.place(draft("a", 1)), s.place(draft("a", 1))
	_, err := s.Pay(t.Context(), paid.No, model.Payment{ID: "taken", Amount: 250})
	require.NoError(t, err)
	_, err = s.Cancel(t.Context(), closed.No)
	require.NoError(t, err)
	before := s.rows()

	for _, o := range []model.Order{paid, pending, closed} {
		_, err = s.Pay(t.Context(), o.No, model.Payment{ID: "new", Amount: 249})
		require.ErrorIs(t, err, model.ErrWrongAmount)
	}
	_, err = s.Pay(t.Context(), paid.No, model.Payment{ID: "taken", Amount: 251})
	require.ErrorIs(t, err, model.ErrWrongAmount, "the same payment with another amount")
	_, err = s.Pay(t.Context(), pending.No, model.Payment{ID: "taken", Amount: 250})
	require.ErrorIs(t, err, model.ErrPaymentTaken)
	_, err = s.Pay(t.Context(), closed.No, model.Payment{ID: "taken", Amount: 250})
	require.ErrorIs(t, err, model.ErrPaymentTaken)
	_, err = s.Pay(t.Context(), "missing", model.Payment{ID: "new", Amount: 250})
	require.ErrorIs(t, err, model.ErrNoOrder)
	var invalid *model.InvalidError
	_, err = s.Pay(t.Context(), "no such id", model.Payment{ID: "new", Amount: 250})
	require.ErrorAs(t, err, &invalid)
	_, err = s.Pay(t.Context(), pending.No, model.Payment{ID: "", Amount: -1})
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Fields, 2)

	require.Empty(t, cmp.Diff(before, s.rows()))
	require.Equal(t, model.Pending, s.order(pending.No).Status)
	_, err = s.store.Lookup(t.Context(), model.TopicExpire, pending.No)
	require.NoError(t, err, "a refused payment withdraws nothing")
}

func TestPay_OnePaymentIDCannotPayTwoOrders(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 200)
	for range 40 {
		a, b := s.place(draft("a", 1)), s.place(draft("a", 1))
		errs := make([]error, 4)
		callers := make([]func(), len(errs))
		for i := range callers {
			no := []string{a.No, b.No}[i%2]
			callers[i] = func() { _, errs[i] = s.Pay(t.Context(), no, model.Payment{ID: "p-" + a.No, Amount: 250}) }
		}
		together(callers...)
		taken := 0
		for _, err := range errs {
			if errors.Is(err, model.ErrPaymentTaken) {
				taken++
				continue
			}
			require.NoError(t, err)
		}
		require.Equal(t, 2, taken)
		require.NotEqual(t, s.order(a.No).Status, s.order(b.No).Status)
	}
	s.requireConserved()
}
