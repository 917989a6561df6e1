package ordering_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

func reminding() ordering.Config { return ordering.Config{RemindBefore: 5 * time.Minute} }

// remindNow lets the time of the order's reminder come and handles its delivery.
func (s *shop) remindNow(no string) outbox.Outcome {
	s.t.Helper()
	s.exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE topic = 'order.remind' AND message_key = ?`, []byte(no))
	outcome, err := s.handle(s.t.Context(), s.deliveryOf(model.TopicRemind, no))
	require.NoError(s.t, err)
	return outcome
}

// requireState looks at the order's latest message of a topic; no state: there never was one.
func (s *shop) requireState(topic, no string, want outbox.State) {
	s.t.Helper()
	require.Equal(s.t, int64(1), s.number(`SELECT COALESCE((SELECT state FROM outbox_messages WHERE topic = ? AND message_key = ?
		ORDER BY id DESC LIMIT 1), '') = ?`, []byte(topic), []byte(no), string(want)), "%s is not %q", topic, want)
}

func TestPlace_MakesAReminderIfThereIsTimeForIt(t *testing.T) {
	t.Parallel()
	cfg := reminding()
	cfg.Normal, cfg.Flash, cfg.Presale = 5*time.Minute+time.Microsecond, 5*time.Minute, time.Second
	s := newShop(t, cfg)
	s.stock("a", 10)
	d := draft("a", 1)
	o := s.place(d)
	require.True(t, o.RemindedAt.IsZero())
	require.Equal(t, int64(2), s.number(`SELECT COUNT(*) FROM outbox_messages WHERE message_key = ?`, []byte(o.No)))
	m, err := s.store.Lookup(t.Context(), model.TopicRemind, o.No)
	require.NoError(t, err)
	require.Equal(t, o.DueAt.Add(-5*time.Minute), m.DueAt)
	m, err = s.store.Lookup(t.Context(), model.TopicExpire, o.No)
	require.NoError(t, err)
	require.Equal(t, o.DueAt, m.DueAt)
	for _, d.Kind = range []model.Kind{model.Flash, model.Presale} {
		no := s.place(d).No
		s.requireState(model.TopicExpire, no, outbox.Scheduled)
		s.requireState(model.TopicRemind, no, "")
	}
	without := newShop(t, ordering.Config{})
	without.stock("a", 10)
	without.requireState(model.TopicRemind, without.place(draft("a", 1)).No, "")
}

// Who ends an order before its time withdraws its reminder, and does not mind if that has taken effect. When its time has come the reminder's
// has as well, and one that is still under way reminds nobody.
func TestRemind_IsWithdrawnWhenItsOrderEnds(t *testing.T) {
	t.Parallel()
	s := newShop(t, reminding())
	s.stock("a", 10)
	for name, end := range map[string]func(no string){
		"pay": func(no string) {
			_, err := s.Pay(t.Context(), no, model.Payment{ID: "p-" + no, Amount: 250})
			require.NoError(t, err)
		},
		"cancel": func(no string) {
			_, err := s.Cancel(t.Context(), no)
			require.NoError(t, err)
		},
		"expire": func(no string) { require.Equal(t, outbox.OutcomeDone, s.expire(no)) },
	} {
		expire, remind, late := outbox.Canceled, outbox.Canceled, outbox.OutcomeCanceled
		if name == "expire" {
			expire, remind, late = outbox.Done, outbox.Scheduled, outbox.OutcomeDone
		}
		live, reminded := s.place(draft("a", 1)).No, s.place(draft("a", 1)).No
		require.Equal(t, outbox.OutcomeDone, s.remindNow(reminded))
		end(live)
		end(reminded)
		s.requireState(model.TopicExpire, live, expire)
		s.requireState(model.TopicRemind, live, remind)
		s.requireState(model.TopicExpire, reminded, expire)
		s.requireState(model.TopicRemind, reminded, outbox.Done)
		require.Equal(t, late, s.remindNow(live), name)
		require.True(t, s.order(live).RemindedAt.IsZero())
		require.False(t, s.order(reminded).RemindedAt.IsZero())
		require.True(t, s.order(reminded).AsPlaced().RemindedAt.IsZero())
	}
	s.requireConserved()
}

// Where no reminders are made, what ends an order looks for none: one that an earlier setting has left behind comes to nothing.
func TestRemind_LeftBehindByAnEarlierSetting(t *testing.T) {
	t.Parallel()
	s := newShop(t, reminding())
	s.stock("a", 10)
	now, err := ordering.New(s.gorm, s.store, ordering.Config{})
	require.NoError(t, err)
	for name, end := range map[string]func(no string){
		"pay": func(no string) {
			_, err := now.Pay(t.Context(), no, model.Payment{ID: "p-" + no, Amount: 250})
			require.NoError(t, err)
		},
		"cancel": func(no string) {
			_, err := now.Cancel(t.Context(), no)
			require.NoError(t, err)
		},
		"expire": func(no string) {
			s.exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE topic = 'order.expire' AND message_key = ?`, []byte(no))
			d := s.delivery(no)
			outcome, err := s.store.Handle(t.Context(), d, func(tx *gorm.DB) error { return now.Expire(t.Context(), tx, d) })
			require.NoError(t, err)
			require.Equal(t, outbox.OutcomeDone, outcome)
		},
	} {
		no := s.place(draft("a", 1)).No
		end(no)
		s.requireState(model.TopicRemind, no, outbox.Scheduled)
		want, err := now.Order(t.Context(), no)
		require.NoError(t, err)
		require.Equal(t, outbox.OutcomeDone, s.remindNow(no), name)
		got, err := now.Order(t.Context(), no)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got), name)
		require.True(t, got.RemindedAt.IsZero(), name)
	}
	// A pending one keeps its reminder, unless its due time is moved.
	kept, moved := s.place(draft("a", 1)).No, s.place(draft("a", 1))
	_, err = now.Extend(t.Context(), moved.No, moved.DueAt.Add(time.Hour))
	require.NoError(t, err)
	s.requireState(model.TopicRemind, moved.No, outbox.Canceled)
	require.Equal(t, outbox.OutcomeDone, s.remindNow(kept))
	o, err := now.Order(t.Context(), kept)
	require.NoError(t, err)
	require.False(t, o.RemindedAt.IsZero())
}

func TestRemind_IsNotedInAPendingOrderOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, reminding())
	s.stock("a", 10)
	o := s.place(draft("a", 1))
	require.Equal(t, outbox.OutcomeDone, s.remindNow(o.No))
	got := s.order(o.No)
	require.False(t, got.RemindedAt.Before(o.CreatedAt))
	require.Empty(t, cmp.Diff(o, got, cmpopts.IgnoreFields(model.Order{}, "RemindedAt")), "nothing else has changed")
	require.Equal(t, outbox.OutcomeDuplicate, s.remindNow(o.No))
	require.Equal(t, got, s.order(o.No))
	require.Equal(t, int64(1), s.number(`SELECT COUNT(*) FROM effects`))
	s.requireState(model.TopicExpire, o.No, outbox.Scheduled)
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	require.Equal(t, model.Closed, s.order(o.No).Status)
	require.Equal(t, int64(2), s.number(`SELECT COUNT(*) FROM effects`))
	s.requireConserved()
}

// A reminder that is left over or late reminds nobody. One that cannot be about an order is for an operator.
func TestRemind_LeavesOtherOrdersAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t, reminding())
	s.stock("a", 10)
	paid, late := s.place(draft("a", 1)), s.place(draft("a", 1))
	_, err := s.Pay(t.Context(), paid.No, model.Payment{ID: "p", Amount: 250})
	require.NoError(t, err)
	s.exec(`UPDATE outbox_messages SET state = 'published', live_key = message_key WHERE topic = 'order.remind'`) // as if it had not been withdrawn
	s.exec(`UPDATE orders SET due_at = UTC_TIMESTAMP(6) WHERE no = ?`, late.No)
	for _, no := range []string{paid.No, late.No} {
		require.Equal(t, outbox.OutcomeDone, s.remindNow(no))
		require.True(t, s.order(no).RemindedAt.IsZero())
	}
	for payload, want := range map[string]string{`{"no":"missing"}`: model.ErrNoOrder.Error(), `{"no":"other"}`: "names order", `{}`: "decode"} {
		err := s.gorm.Transaction(func(tx *gorm.DB) error {
			return s.Remind(t.Context(), tx, outbox.Delivery{ID: 1, Generation: 1, Key: "missing", Payload: []byte(payload)})
		})
		require.ErrorContains(t, err, want)
	}
}

func TestExtend_MovesTheReminderToo(t *testing.T) {
	t.Parallel()
	s := newShop(t, reminding())
	s.stock("a", 10)
	o := s.place(draft("a", 1))
	extend := func(ahead time.Duration) time.Time {
		t.Helper()
		got, err := s.Extend(t.Context(), o.No, time.Now().Add(ahead))
		require.NoError(t, err)
		s.requireOneDueTime()
		return got.DueAt
	}
	requireAt := func(due time.Time, generation int64) {
		t.Helper()
		m, err := s.store.Lookup(t.Context(), model.TopicRemind, o.No)
		require.NoError(t, err)
		require.Equal(t, due.Add(-5*time.Minute), m.DueAt)
		require.Equal(t, generation, m.Generation)
	}
	requireAt(extend(time.Hour), 2)
	requireAt(extend(10*time.Minute), 3)
	extend(4 * time.Minute)
	s.requireState(model.TopicRemind, o.No, outbox.Canceled)
	extend(3 * time.Minute)
	requireAt(extend(time.Hour), 1) // another message
	require.Equal(t, outbox.OutcomeDone, s.remindNow(o.No))
	first := s.order(o.No).RemindedAt
	requireAt(extend(2*time.Hour), 1)
	require.Equal(t, first, s.order(o.No).RemindedAt)
	require.Equal(t, outbox.OutcomeDone, s.remindNow(o.No), "and he is reminded again")
	require.True(t, s.order(o.No).RemindedAt.After(first))
	extend(time.Minute)
	s.requireState(model.TopicRemind, o.No, outbox.Done)
	require.Equal(t, outbox.OutcomeDone, s.expire(o.No))
	s.requireConserved()
}

// All that can happen to an order at once, many times: nobody loses more than a race, and what holds afterwards holds for both messages.
func TestRemind_RacesWithWhateverEndsTheOrder(t *testing.T) {
	t.Parallel()
	const n = 400
	s := newShop(t, reminding())
	orders, expiries := s.placeMany(n, 1, "p0", "p1", "p2")
	reminders := make([]outbox.Delivery, n)
	crowd(n, func(i int) { reminders[i] = s.deliveryOf(model.TopicRemind, orders[i].No) })
	s.exec(`UPDATE orders SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR`) // so that reminders are in time
	soon := orders[0].CreatedAt.Add(time.Hour)
	crowd(n, func(i int) {
		no := orders[i].No
		deliver := func(d outbox.Delivery) func() {
			return func() {
				if _, err := s.handle(t.Context(), d); err != nil {
					t.Error(err)
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
			deliver(expiries[i]),
			func() {
				if _, err := s.Extend(t.Context(), no, soon); err != nil && !cmp.Equal(err, model.ErrClosed, cmpopts.EquateErrors()) {
					t.Error(err)
				}
			},
		}
		together(deliver(reminders[i]), others[i%4], deliver(expiries[i]), deliver(reminders[i]))
	})
	s.requireConserved()
	require.Zero(t, s.number(`SELECT COUNT(*) FROM orders o LEFT JOIN outbox_messages m ON m.topic = 'order.expire' AND m.live_key = o.no
		WHERE o.status = 'pending' AND NOT (m.due_at <=> o.due_at)`))
	require.Zero(t, s.number(`SELECT COUNT(*) FROM outbox_messages m JOIN orders o ON o.no = CONVERT(m.message_key USING ascii)
		WHERE o.status <> 'pending' AND m.live_key IS NOT NULL`), "no message outlives its order")
	require.Zero(t, s.number(`SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0`))
	require.Positive(t, s.number(`SELECT COUNT(*) FROM orders WHERE reminded_at IS NOT NULL AND status <> 'pending'`), "no race took place: nobody was reminded")
	require.Positive(t, s.number(`SELECT COUNT(*) FROM orders WHERE reminded_at IS NULL AND status <> 'pending'`), "no race took place: all were reminded")
}

// The message that closes comes first, then the one that reminds, then the order, then its products. (Expire does not touch the reminder.)
func TestLocks_TheReminderComesSecond(t *testing.T) {
	t.Parallel()
	s := newShop(t, reminding())
	s.stock("a", 20)
	for name, call := range map[string]func(ctx context.Context, no string) error{
		"pay": func(ctx context.Context, no string) error {
			_, err := s.Pay(ctx, no, model.Payment{ID: "p-" + no, Amount: 250})
			return err
		},
		"cancel": func(ctx context.Context, no string) error { _, err := s.Cancel(ctx, no); return err },
		"extend": func(ctx context.Context, no string) error {
			_, err := s.Extend(ctx, no, time.Now().Add(time.Hour))
			return err
		},
	} {
		o := s.place(draft("a", 1))
		done := make(chan error, 1)
		held := s.hold(`UPDATE outbox_messages SET held = TRUE WHERE topic = 'order.expire' AND message_key = ? AND id > 0`, []byte(o.No))
		go func() { done <- call(t.Context(), o.No) }()
		s.waiting("UPDATE outbox_messages SET")
		s.free(`UPDATE outbox_messages SET held = TRUE WHERE topic = 'order.remind' AND live_key = ?`, []byte(o.No))
		require.NoError(t, held.Rollback())
		require.NoError(t, <-done, name)

		o = s.place(draft("a", 1))
		held = s.hold(`UPDATE outbox_messages SET held = TRUE WHERE topic = 'order.remind' AND message_key = ? AND id > 0`, []byte(o.No))
		go func() { done <- call(t.Context(), o.No) }()
		s.waiting("UPDATE outbox_messages SET")
		s.free(`UPDATE orders SET version = version + 1 WHERE no = ?`, o.No)
		s.free(`UPDATE products SET name = CONCAT(name, '.') WHERE sku = 'a'`)
		require.NoError(t, held.Rollback())
		require.NoError(t, <-done, name)
	}
	s.requireConserved()
}
