package ordering_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
)

func TestOrders_PagesThroughWhatTheFilterPicks(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 1000)
	s.stock("b", 1000)
	var all []model.Order
	for i := range 23 {
		d := model.Draft{Kind: model.Normal, User: fmt.Sprint("user", i%3), Items: []model.Item{
			{SKU: "b", Quantity: 1, Price: int64(i)}, {SKU: "a", Quantity: 2, Price: 1},
		}}
		o := s.place(d)
		var err error
		switch i % 4 {
		case 0:
			o, err = s.Pay(t.Context(), o.No, model.Payment{ID: o.No, Amount: o.Total})
		case 1:
			o, err = s.Cancel(t.Context(), o.No)
		}
		require.NoError(t, err)
		all = append(all, o)
	}
	slices.Reverse(all)

	for _, user := range []string{"", "user1", "nobody"} {
		for _, status := range []model.Status{"", model.Pending, model.Paid, model.Closed} {
			want := []model.Order{}
			for _, o := range all {
				if (user == "" || o.User == user) && (status == "" || o.Status == status) {
					want = append(want, o)
				}
			}
			for _, limit := range []int{1, 3, len(want), model.MaxPage} {
				got := []model.Order{}
				f := model.OrderFilter{User: user, Status: status, Limit: max(limit, 1)}
				for {
					page, next, err := s.Orders(t.Context(), f)
					require.NoError(t, err)
					require.LessOrEqual(t, len(page), f.Limit)
					got = append(got, page...)
					if next == "" {
						break
					}
					require.Equal(t, page[len(page)-1].No, next)
					s.place(draft("a", 1)) // newer than the page: must not move it
					f.After = next
				}
				if user == "" && (status == "" || status == model.Pending) {
					got = slices.DeleteFunc(got, func(o model.Order) bool { return o.No > all[0].No })
				}
				require.Equal(t, want, got, "user %q status %q limit %d", user, status, limit)
			}
		}
	}
	var invalid *model.InvalidError
	_, _, err := s.Orders(t.Context(), model.OrderFilter{User: "a b", Status: "open", After: "?", Limit: 0})
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Fields, 4)
	_, err = s.Order(t.Context(), "missing")
	require.ErrorIs(t, err, model.ErrNoOrder)
}
