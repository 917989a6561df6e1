package ordering_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func TestOutcomes_AreToldOnceAndOnlyOfWhatHasHappened(t *testing.T) {
	t.Parallel()
	told := map[ordering.Outcome]int64{}
	cfg := reminding()
	cfg.Happened = func(what ordering.Outcome, n int64) { told[what] += n }
	s := newShop(t, cfg)
	s.stock("a", 4)
	requireTold := func(why string, want map[ordering.Outcome]int64) {
		t.Helper()
		require.Equal(t, want, maps.Clone(told), why)
		clear(told)
	}

	for range 2 {
		_, err := s.Place(t.Context(), draft("a", 1), "key")
		require.NoError(t, err)
	}
	_, err := s.Place(t.Context(), draft("a", 9), "")
	require.Error(t, err)
	requireTold("a call that is repeated or refused places nothing", map[ordering.Outcome]int64{ordering.Placed: 1})

	paid := s.place(draft("a", 1))
	for range 2 {
		_, err = s.Pay(t.Context(), paid.No, model.Payment{ID: "p1", Amount: paid.Total})
		require.NoError(t, err)
	}
	_, err = s.Pay(t.Context(), paid.No, model.Payment{ID: "p2", Amount: paid.Total})
	require.NoError(t, err)
	requireTold("the second payment is a refund", map[ordering.Outcome]int64{ordering.Placed: 1, ordering.Paid: 1, ordering.Refunded: 1})

	o := s.place(draft("a", 1))
	_, err = s.Extend(t.Context(), o.No, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, s.remindNow(o.No))
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	require.Equal(t, outbox.OutcomeDuplicate, s.expire(o.No))
	requireTold("by the effects", map[ordering.Outcome]int64{ordering.Placed: 1, ordering.Extended: 1, ordering.Reminded: 1, ordering.ClosedByTimeout: 1})

	o = s.place(draft("a", 1))
	for range 2 {
		_, err = s.Cancel(t.Context(), o.No)
		require.NoError(t, err)
	}
	requireTold("by the user", map[ordering.Outcome]int64{ordering.Placed: 1, ordering.ClosedByUser: 1})
}
