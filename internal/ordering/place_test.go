package ordering_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
)

func TestPlace_WritesOrderStockAndMessageTogether(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{Flash: 10*time.Minute + 1}) // a nanosecond: rounded up
	s.stock("b", 10)
	s.stock("a", 10)
	d := model.Draft{Kind: model.Flash, User: "ann", Items: []model.Item{
		{SKU: "b", Quantity: 2, Price: 100}, {SKU: "a", Quantity: 3, Price: 7},
	}}
	o := s.place(d)

	require.Equal(t, 10*time.Minute+time.Microsecond, o.DueAt.Sub(o.CreatedAt))
	require.Equal(t, int64(221), o.Total)
	require.Len(t, o.No, 32)
	require.Empty(t, cmp.Diff(o, s.order(o.No)), "what is returned is what is stored")
	require.Equal(t, model.Product{SKU: "a", Name: "Product a", Available: 7, Reserved: 3}, s.product("a"))
	require.Equal(t, model.Product{SKU: "b", Name: "Product b", Available: 8, Reserved: 2}, s.product("b"))
	m, err := s.store.Lookup(t.Context(), model.TopicExpire, o.No)
	require.NoError(t, err)
	require.Equal(t, o.DueAt, m.DueAt, "order and message are due at the same instant")
	s.requireConserved()
}

func TestPlace_RefusedWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("few", 1)
	s.stock("many", 100)
	before := s.rows()
	item := func(sku string, quantity int64) model.Item { return model.Item{SKU: sku, Quantity: quantity, Price: 1} }

	_, err := s.Place(t.Context(), model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{item("many", 5), item("few", 2)}}, "k1")
	var short *model.OutOfStockError
	require.ErrorAs(t, err, &short)
	require.Equal(t, "few", short.SKU)
	_, err = s.Place(t.Context(), model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{item("many", 5), item("gone", 2)}}, "k2")
	var invalid *model.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "items[1].sku", invalid.Fields[0].Field)
	_, err = s.Place(t.Context(), draft("many", 0), "k3")
	require.ErrorAs(t, err, &invalid)
	_, err = s.Place(t.Context(), draft("many", 1), "kä")
	require.ErrorAs(t, err, &invalid)

	require.Empty(t, cmp.Diff(before, s.rows()))
	require.Equal(t, int64(100), s.product("many").Available)
}

func TestPlace_NeverSellsMoreThanThereIs(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 25)
	s.stock("b", 25)
	var placed, refused atomic.Int64
	callers := make([]func(), 16)
	for i := range callers {
		// Half of them name the products the other way round: the order of locks must not follow the order of items.
		items := []model.Item{{SKU: "a", Quantity: 1, Price: 1}, {SKU: "b", Quantity: 1, Price: 1}}
		if i%2 == 0 {
			items[0], items[1] = items[1], items[0]
		}
		callers[i] = func() {
			for range 4 {
				_, err := s.Place(t.Context(), model.Draft{Kind: model.Normal, User: "ann", Items: items}, "")
				var short *model.OutOfStockError
				switch {
				case err == nil:
					placed.Add(1)
				case errors.As(err, &short):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		}
	}
	together(callers...)
	require.Equal(t, int64(25), placed.Load())
	require.Equal(t, int64(64-25), refused.Load())
	s.requireConserved()
}

func TestPlace_SameKeyReturnsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 3)
	first, err := s.Place(t.Context(), draft("a", 3), "once")
	require.NoError(t, err)
	_, err = s.Pay(t.Context(), first.No, model.Payment{ID: "p1", Amount: first.Total})
	require.NoError(t, err)
	before := s.rows()

	again, err := s.Place(t.Context(), draft("a", 3), "once") // paid and sold out by now
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(first, again))
	_, err = s.Place(t.Context(), draft("a", 2), "once")
	require.ErrorIs(t, err, model.ErrKeyReused)
	require.Empty(t, cmp.Diff(before, s.rows()))

	other := draft("a", 1)
	other.User = "bob"
	s.stock("a", 1)
	theirs, err := s.Place(t.Context(), other, "once")
	require.NoError(t, err, "keys belong to their user")
	require.NotEqual(t, first.No, theirs.No)
}

func TestPlace_AKeyIsUsedOnlyByAnAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 0)
	_, err := s.Place(t.Context(), draft("a", 1), "once")
	var short *model.OutOfStockError
	require.ErrorAs(t, err, &short)
	s.stock("a", 1)
	_, err = s.Place(t.Context(), draft("a", 1), "once")
	require.NoError(t, err)
}

func TestPlace_AKeyIsForgottenAfterItsLife(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 10)
	first, err := s.Place(t.Context(), draft("a", 1), "once")
	require.NoError(t, err)
	fresh, err := s.Place(t.Context(), draft("a", 1), "fresh")
	require.NoError(t, err)

	s.exec(`UPDATE idempotency_keys SET used_at = used_at - INTERVAL 86390 SECOND WHERE idem_key = 'once'`)
	again, err := s.Place(t.Context(), draft("a", 1), "once")
	require.NoError(t, err)
	require.Equal(t, first.No, again.No)

	s.exec(`UPDATE idempotency_keys SET used_at = used_at - INTERVAL 10 SECOND WHERE idem_key = 'once'`)
	next, err := s.Place(t.Context(), draft("a", 2), "once")
	require.NoError(t, err)
	require.NotEqual(t, first.No, next.No)
	again, err = s.Place(t.Context(), draft("a", 2), "once")
	require.NoError(t, err)
	require.Equal(t, next.No, again.No)

	s.exec(`UPDATE idempotency_keys SET used_at = used_at - INTERVAL 86400 SECOND WHERE idem_key = 'once'`)
	n, err := s.Forget(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	again, err = s.Place(t.Context(), draft("a", 1), "fresh")
	require.NoError(t, err)
	require.Equal(t, fresh.No, again.No)
}

func TestPlace_OneOrderForACrowdWithOneKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 1000)
	for round := range 10 {
		numbers := make([]string, 12)
		callers := make([]func(), len(numbers))
		for i := range callers {
			callers[i] = func() {
				o, err := s.Place(t.Context(), draft("a", 1), fmt.Sprint("key", round))
				if err != nil {
					t.Error(err)
				}
				numbers[i] = o.No
			}
		}
		together(callers...)
		for _, no := range numbers {
			require.Equal(t, numbers[0], no)
		}
	}
	require.Equal(t, int64(10), s.rows()["orders"])
	s.requireConserved()
}

// Scenario 37: the timeout setting changes from 30 to 5 min and back.
func TestScenario37_OrdersKeepTheDueTimeTheyWerePlacedWith(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 10)
	want := map[string]time.Duration{}
	for _, limit := range []time.Duration{30 * time.Minute, 5 * time.Minute, 30 * time.Minute} {
		service, err := ordering.New(s.gorm, s.store, ordering.Config{Normal: limit})
		require.NoError(t, err)
		o, err := service.Place(t.Context(), draft("a", 1), "")
		require.NoError(t, err)
		want[o.No] = limit
		for no, limit := range want {
			o, err := service.Order(t.Context(), no)
			require.NoError(t, err)
			require.Equal(t, limit, o.DueAt.Sub(o.CreatedAt))
			m, err := s.store.Lookup(t.Context(), model.TopicExpire, no)
			require.NoError(t, err)
			require.Equal(t, o.DueAt, m.DueAt)
		}
	}
	require.Len(t, want, 3)
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	for name, cfg := range map[string]ordering.Config{
		"below zero": {Normal: -time.Second}, "beyond a DATETIME": {Presale: 100 * 365 * 24 * time.Hour}, "deadline": {Deadline: -1},
	} {
		_, err := ordering.New(s.gorm, s.store, cfg)
		require.Error(t, err, name)
	}
	_, err := ordering.New(nil, s.store, ordering.Config{})
	require.Error(t, err)
	_, err = ordering.New(s.gorm, nil, ordering.Config{})
	require.Error(t, err)
}
