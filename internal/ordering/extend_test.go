package ordering_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// requireOneDueTime checks that each order's due time is that of its message, and that a pending one's message is live.
func (s *shop) requireOneDueTime() {
	s.t.Helper()
	require.Zero(s.t, s.number(`SELECT COUNT(*) FROM orders o LEFT JOIN outbox_messages m ON m.id = o.message_id
		WHERE NOT (m.due_at <=> o.due_at) OR m.topic <> 'order.expire' OR m.message_key <> o.no`),
		"orders whose due time is not their message's")
	require.Zero(s.t, s.number(`SELECT COUNT(*) FROM orders o JOIN outbox_messages m ON m.id = o.message_id
		WHERE (o.status = 'pending') <> (m.live_key IS NOT NULL)`), "orders pending without a live message, or finished with one")
}

func TestExtend_MovesOrderAndMessageEarlierAndLater(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	first := s.delivery(o.No)
	for i, due := range []time.Time{
		o.DueAt.Add(48 * time.Hour),
		o.CreatedAt.Add(time.Minute),
		o.DueAt.Add(time.Hour).Add(time.Nanosecond).In(time.FixedZone("", 8*3600)), // rounded up, and whatever its zone
		o.DueAt.Add(time.Hour),
		o.DueAt.Add(time.Hour), // again the same
	} {
		got, err := s.Extend(t.Context(), o.No, due)
		require.NoError(t, err)
		want := due.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC()
		require.Equal(t, want, got.DueAt)
		require.Empty(t, cmp.Diff(o, got, cmpopts.IgnoreFields(model.Order{}, "DueAt")))
		require.Equal(t, o, got.AsPlaced())
		require.Equal(t, got, s.order(o.No))
		m, err := s.store.Lookup(t.Context(), model.TopicExpire, o.No)
		require.NoError(t, err)
		require.Equal(t, want, m.DueAt)
		require.Equal(t, int64(i+2), m.Generation)
		s.requireOneDueTime()
	}
	outcome, err := s.handle(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeStale, outcome, "what is on its way with the old due time takes no effect")
	require.Equal(t, model.Pending, s.order(o.No).Status)
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	require.Equal(t, model.Closed, s.order(o.No).Status)
	s.requireConserved()
}

// A lookup by key finds the newest generation; the older delivery must lose even if it comes when both are due.
func TestExtend_ADeliveryOfTheOlderGenerationIsStaleForever(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	old := s.delivery(o.No)
	_, err := s.Extend(t.Context(), o.No, o.DueAt.Add(time.Hour))
	require.NoError(t, err)
	s.comeDue()
	outcome, err := s.handle(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeStale, outcome)
	require.Zero(t, s.number("SELECT COUNT(*) FROM effects"))
	outcome, err = s.handle(t.Context(), s.delivery(o.No))
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
	outcome, err = s.handle(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeStale, outcome)
	require.Equal(t, int64(1), s.number("SELECT COUNT(*) FROM effects"))
}

func TestExtend_RevivesADeadMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 2))
	s.exec("UPDATE outbox_messages SET state = 'dead', attempts = 10, available_at = NULL")
	s.comeDue()
	due := o.DueAt.Add(time.Hour)
	_, err := s.Extend(t.Context(), o.No, due)
	require.NoError(t, err)
	m := s.message("", o.No)
	require.Equal(t, outbox.Record{ID: m.ID, Topic: model.TopicExpire, Key: o.No, State: outbox.Scheduled, Generation: 2, DueAt: due, AvailableAt: due, CreatedAt: m.CreatedAt}, m)
	require.Equal(t, outbox.OutcomeDone, s.expireNow(o.No))
	require.Equal(t, model.Closed, s.order(o.No).Status)
}

func TestExtend_RefusesAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	pending, paid, closed := s.place(draft("a", 1)), s.place(draft("a", 1)), s.place(draft("a", 1))
	_, err := s.Pay(t.Context(), paid.No, model.Payment{ID: "p", Amount: 250})
	require.NoError(t, err)
	_, err = s.Cancel(t.Context(), closed.No)
	require.NoError(t, err)
	soon := pending.CreatedAt.Add(time.Hour)
	versions := s.number("SELECT SUM(version) FROM orders") + s.number("SELECT SUM(revision) FROM outbox_messages")

	_, err = s.Extend(t.Context(), paid.No, soon)
	require.ErrorIs(t, err, model.ErrPaid)
	_, err = s.Extend(t.Context(), closed.No, soon)
	require.ErrorIs(t, err, model.ErrClosed)
	_, err = s.Extend(t.Context(), "missing", soon)
	require.ErrorIs(t, err, model.ErrNoOrder)
	for name, due := range map[string]time.Time{
		"past": pending.CreatedAt, "zero": {}, "beyond": pending.CreatedAt.Add(model.MaxExtension + time.Hour),
		"far beyond": time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), "before Christ": time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for _, no := range []string{pending.No, paid.No, closed.No} {
			var invalid *model.InvalidError
			_, err = s.Extend(t.Context(), no, due)
			require.ErrorAs(t, err, &invalid, name)
			require.ErrorContains(t, err, "366 days")
		}
	}
	var invalid *model.InvalidError
	_, err = s.Extend(t.Context(), "a b", soon)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, versions, s.number("SELECT SUM(version) FROM orders")+s.number("SELECT SUM(revision) FROM outbox_messages"))
	s.requireOneDueTime()
}

func TestExtend_TheIdempotentAnswerHoldsTheFirstDueTime(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	first, err := s.Place(t.Context(), draft("a", 1), "once")
	require.NoError(t, err)
	for _, ahead := range []time.Duration{time.Hour, 2 * time.Hour} {
		_, err = s.Extend(t.Context(), first.No, first.DueAt.Add(ahead))
		require.NoError(t, err)
		again, err := s.Place(t.Context(), draft("a", 1), "once")
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(first, again))
	}
	require.Equal(t, first.DueAt.Add(2*time.Hour), s.order(first.No).DueAt)
}

// An order whose message has been lost from the ledger gets one again: the due time that the caller was told is kept.
func TestExtend_MakesTheMessageThatIsMissing(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 5)
	o := s.place(draft("a", 1))
	s.exec(`DELETE FROM outbox_messages`)
	_, err := s.Extend(t.Context(), o.No, o.DueAt.Add(time.Hour))
	require.NoError(t, err)
	s.requireOneDueTime()
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	s.requireConserved()
}

func TestExtend_RacesWithPayCancelAndExpire(t *testing.T) {
	t.Parallel()
	const n = 400
	s := newShop(t, ordering.Config{})
	orders, deliveries := s.placeMany(n, 1, "p0", "p1", "p2")
	s.exec(`UPDATE outbox_messages SET due_at = '2026-01-01'`)
	s.exec(`UPDATE orders SET due_at = '2026-01-01'`)
	soon := orders[0].CreatedAt.Add(time.Hour)
	crowd(n, func(i int) {
		no := orders[i].No
		extend := func(by time.Duration) func() {
			return func() {
				o, err := s.Extend(t.Context(), no, soon.Add(by))
				switch {
				case err == nil && o.DueAt.Equal(soon.Add(by)) && o.Status == model.Pending:
				case cmp.Equal(err, model.ErrPaid, cmpopts.EquateErrors()), cmp.Equal(err, model.ErrClosed, cmpopts.EquateErrors()):
				default:
					t.Error(o, err)
				}
			}
		}
		others := []func(){
			func() {
				if _, err := s.Pay(t.Context(), no, model.Payment{ID: "p-" + no, Amount: orders[i].Total}); err != nil {
					t.Error(err)
				}
			},
			func() {
				if _, err := s.Cancel(t.Context(), no); err != nil {
					t.Error(err)
				}
			},
			func() {
				outcome, err := s.handle(t.Context(), deliveries[i])
				if err != nil || outcome != outbox.OutcomeDone && outcome != outbox.OutcomeStale {
					t.Error(outcome, err)
				}
			},
		}
		together(extend(0), others[i%3], extend(time.Minute))
	})
	s.requireConserved()
	s.requireOneDueTime()
	timeouts := s.number("SELECT COUNT(*) FROM orders WHERE close_reason = 'timeout'")
	require.Equal(t, timeouts, s.number("SELECT COUNT(*) FROM effects"))
	require.Positive(t, timeouts, "no race took place: nothing expired")
	require.Positive(t, s.number("SELECT COUNT(*) FROM orders WHERE status = 'pending'"), "no race took place: everything expired")
	require.Positive(t, s.number("SELECT COUNT(*) FROM orders WHERE status <> 'pending' AND first_due_at IS NULL"), "nobody won against Extend")
}
