package ordering_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func TestCancel_GivesStockBackAndWithdrawsTheMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	closed, err := s.Cancel(t.Context(), o.No)
	require.NoError(t, err)
	require.Equal(t, model.Closed, closed.Status)
	require.Equal(t, model.User, closed.CloseReason)
	require.False(t, closed.ClosedAt.Before(o.CreatedAt))
	require.Empty(t, cmp.Diff(o, closed, cmpopts.IgnoreFields(model.Order{}, "Status", "CloseReason", "ClosedAt")))
	require.Equal(t, int64(5), s.product("a").Available)
	require.Equal(t, outbox.OutcomeCanceled, s.expire(o.No))

	before := s.rows()
	again, err := s.Cancel(t.Context(), o.No)
	require.NoError(t, err)
	require.Equal(t, closed, again)
	require.Empty(t, cmp.Diff(before, s.rows()))
	s.requireConserved()
}

func TestCancel_RefusesPaidAndUnknownOrders(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	paid, err := s.Pay(t.Context(), o.No, model.Payment{ID: "p", Amount: 500})
	require.NoError(t, err)
	_, err = s.Cancel(t.Context(), o.No)
	require.ErrorIs(t, err, model.ErrPaid)
	require.Equal(t, paid, s.order(o.No))
	_, err = s.Cancel(t.Context(), "missing")
	require.ErrorIs(t, err, model.ErrNoOrder)
	var invalid *model.InvalidError
	_, err = s.Cancel(t.Context(), "")
	require.ErrorAs(t, err, &invalid)
}

func TestExpire_ClosesOnceAndLeavesOneEffect(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	d := s.delivery(o.No)
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	closed := s.order(o.No)
	require.Equal(t, model.Closed, closed.Status)
	require.Equal(t, model.Timeout, closed.CloseReason)
	require.Equal(t, int64(5), s.product("a").Available)

	outcome, err := s.handle(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDuplicate, outcome)
	require.Equal(t, closed, s.order(o.No))
	require.Equal(t, int64(1), s.number("SELECT COUNT(*) FROM effects WHERE message_id = ? AND generation = ?", d.ID, d.Generation))
	s.requireConserved()
}

func TestExpire_WithoutTheGuardADoubledEffectIsCounted(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	d := s.delivery(o.No)
	for range 2 {
		require.NoError(t, s.gorm.Transaction(func(tx *gorm.DB) error { return s.Expire(t.Context(), tx, d) }))
	}
	require.Equal(t, int64(2), s.number("SELECT COUNT(*) FROM effects WHERE message_id = ?", d.ID))
	require.Equal(t, int64(5), s.product("a").Available, "the compare-and-set still gives stock back once")
}

func TestExpire_LeavesAPaidOrderAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	paid, err := s.Pay(t.Context(), o.No, model.Payment{ID: "p", Amount: 500})
	require.NoError(t, err)
	s.exec(`UPDATE outbox_messages SET state = 'published' WHERE message_key = ?`, []byte(o.No)) // as if it had not been withdrawn
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	require.Equal(t, paid, s.order(o.No))
	require.Equal(t, int64(2), s.product("a").Sold)
	s.requireConserved()
}

func TestExpire_BringsUnreadableMessagesBeforeAnOperator(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	for name, payload := range map[string][]byte{
		"not JSON": []byte("\x00"), "an id of another sort": []byte(`{"no":"a b"}`), "an order that does not exist": []byte(`{"no":"missing"}`),
	} {
		o := s.place(draft("a", 1))
		d := s.delivery(o.No)
		d.Payload = payload
		s.comeDue()
		outcome, err := s.handle(t.Context(), d)
		require.NoError(t, err, name)
		require.Equal(t, outbox.OutcomeRetry, outcome, name)
		require.Equal(t, model.Pending, s.order(o.No).Status, name)
	}
	require.Zero(t, s.number("SELECT COUNT(*) FROM effects"), "no effect was committed")
}

// Orders that close together end as if each had closed alone, whatever else is among them.
func TestExpireAll_ClosesTogetherWhatIsPending(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 100)
	s.stock("b", 100)
	var ds []outbox.Delivery
	var nos []string
	for i := range 10 {
		o := s.place(draft([]string{"a", "b"}[i%2], int64(i+1)))
		nos, ds = append(nos, o.No), append(ds, s.delivery(o.No))
	}
	paid, err := s.Pay(t.Context(), nos[3], model.Payment{ID: "p", Amount: s.order(nos[3]).Total})
	require.NoError(t, err)
	canceled, err := s.Cancel(t.Context(), nos[4])
	require.NoError(t, err)
	s.exec(`UPDATE outbox_messages SET state = 'published', live_key = NULL`) // as if those two had not been withdrawn
	s.exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND`)
	expireAll := func(ds []outbox.Delivery) []outbox.Result {
		effect := func(tx *gorm.DB, ds []outbox.Delivery) error { return s.ExpireAll(t.Context(), tx, ds) }
		results := s.store.HandleBatch(t.Context(), ds, effect)
		for i := range results {
			if errors.Is(results[i].Err, outbox.ErrAlone) {
				results[i] = s.store.HandleBatch(t.Context(), ds[i:i+1], effect)[0]
			}
		}
		return results
	}
	for i, r := range expireAll(ds) {
		require.NoError(t, r.Err)
		require.Equal(t, outbox.OutcomeDone, r.Outcome, i)
	}
	for i, no := range nos {
		switch i {
		case 3:
			require.Equal(t, paid, s.order(no))
		case 4:
			require.Equal(t, canceled, s.order(no))
		default:
			require.Equal(t, model.Closed, s.order(no).Status, i)
			require.Equal(t, model.Timeout, s.order(no).CloseReason, i)
		}
	}
	require.Equal(t, int64(10), s.number(`SELECT COUNT(*) FROM effects`))
	require.Equal(t, int64(4), s.product("b").Sold)
	s.requireConserved()

	// One that cannot be read, or is about no order, is on its own.
	ds = nil
	for range 3 {
		ds = append(ds, s.delivery(s.place(draft("a", 1)).No))
	}
	s.comeDue()
	ds[1].Payload = []byte(`{"no":"missing"}`)
	results := expireAll(ds)
	for i, want := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeRetry, outbox.OutcomeDone} {
		require.NoError(t, results[i].Err)
		require.Equal(t, want, results[i].Outcome, i)
	}
	require.Equal(t, int64(1), s.number(`SELECT COUNT(*) FROM outbox_messages WHERE attempts = 1`))
	s.requireConserved()
}
