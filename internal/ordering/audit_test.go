package ordering_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// audit makes a pass with the checks and reports what they found.
func (s *shop) audit(scope outbox.Scope, checks ...outbox.Check) (outbox.Report, error) {
	s.t.Helper()
	if len(checks) == 0 {
		checks = s.Checks()
	}
	rec, err := outbox.NewReconciler(s.store, outbox.ReconcileConfig{Checks: checks})
	require.NoError(s.t, err)
	scope.Audit = true
	report, err := rec.Run(s.t.Context(), scope)
	require.False(s.t, report.Skipped, "the audit before has given its lock back")
	return report, err
}

// requireFound makes an audit and compares the ids of each kind that it found, and how many it mended.
func (s *shop) requireFound(dryRun bool, mended int, want map[string][]string) {
	s.t.Helper()
	report, err := s.audit(outbox.Scope{DryRun: dryRun})
	require.NoError(s.t, err)
	got, n := map[string][]string{}, 0
	for kind, finding := range report.Findings {
		if kind == outbox.FoundDead {
			continue // the ledger's own
		}
		n += finding.Mended
		got[kind] = finding.IDs
		require.Len(s.t, finding.IDs, finding.Found, kind)
		slices.Sort(got[kind])
	}
	for _, ids := range want {
		slices.Sort(ids)
	}
	require.Equal(s.t, want, got)
	require.Equal(s.t, mended, n)
}

// contents is every row of orders, stock and messages.
func (s *shop) contents() string {
	s.t.Helper()
	var all strings.Builder
	for _, table := range []string{"orders", "products", "stock_movements", "effects", "outbox_messages"} {
		var rows []map[string]any
		require.NoError(s.t, s.gorm.WithContext(s.t.Context()).Raw("SELECT * FROM "+table+" ORDER BY 1").Scan(&rows).Error)
		for _, row := range rows {
			fmt.Fprintln(&all, row)
		}
	}
	return all.String()
}

func (s *shop) mustTx(fn func(tx *gorm.DB) error) {
	s.t.Helper()
	require.NoError(s.t, s.gorm.WithContext(s.t.Context()).Transaction(fn))
}

const revive = `UPDATE outbox_messages SET state = 'published', live_key = message_key, finished_at = NULL,
	available_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE message_key = ?`

func TestAudit_FindsEveryKindAndMendsWhatIsSafe(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 100)
	orders := map[string]model.Order{}
	for _, name := range []string{"well", "gone", "gone and past due", "never known", "done", "canceled", "dead", "paid", "paid, live", "closed, dead", "closed"} {
		orders[name] = s.place(draft("a", 1))
	}
	no := func(name string) string { return orders[name].No }
	key := func(name string) []byte { return []byte(no(name)) }
	s.exec(`DELETE FROM outbox_messages WHERE message_key IN (?, ?, ?)`, key("gone"), key("gone and past due"), key("never known"))
	s.exec(`UPDATE orders SET due_at = '2026-01-01' WHERE no = ?`, no("gone and past due"))
	s.exec(`UPDATE orders SET message_id = 0 WHERE no = ?`, no("never known"))
	s.exec(`UPDATE outbox_messages SET state = 'done', live_key = NULL, available_at = '2099-01-01' WHERE message_key = ?`, key("done"))
	s.mustTx(func(tx *gorm.DB) error { return s.store.Cancel(t.Context(), tx, model.TopicExpire, no("canceled")) })
	s.exec(`UPDATE outbox_messages SET state = 'dead', available_at = NULL WHERE message_key = ?`, key("dead"))
	for _, name := range []string{"paid", "paid, live"} {
		_, err := s.Pay(t.Context(), no(name), model.Payment{ID: no(name), Amount: 250})
		require.NoError(t, err)
	}
	for _, name := range []string{"closed, dead", "closed"} {
		_, err := s.Cancel(t.Context(), no(name))
		require.NoError(t, err)
	}
	s.exec(revive, key("paid, live"))
	s.exec(revive, key("closed, dead"))
	s.exec(`UPDATE outbox_messages SET state = 'dead', available_at = NULL WHERE message_key = ?`, key("closed, dead"))
	for _, ghost := range []string{"!", "ghost", "zz 幽霊"} { // before, among and after the orders, two of them no ids
		s.mustTx(func(tx *gorm.DB) error {
			return s.store.Enqueue(t.Context(), tx, &outbox.Message{Topic: model.TopicExpire, Key: ghost, Delay: time.Hour})
		})
	}
	s.mustTx(func(tx *gorm.DB) error { // another topic is another matter
		return s.store.Enqueue(t.Context(), tx, &outbox.Message{Topic: "order.other", Key: "ghost", Delay: time.Hour})
	})

	want := func() map[string][]string {
		return map[string][]string{
			ordering.FoundOrderWithoutMessage:    {no("gone"), no("gone and past due"), no("never known")},
			ordering.FoundOrderUnfinished:        {no("done"), no("canceled")},
			ordering.FoundMessageOfFinishedOrder: {no("paid, live"), no("closed, dead")},
			ordering.FoundMessageWithoutOrder:    {"!", "ghost", "zz 幽霊"},
		}
	}
	before := s.contents()
	s.requireFound(true, 0, want())
	require.Equal(t, before, s.contents(), "a dry run changes nothing")
	s.requireFound(false, 7, want())
	s.requireFound(false, 0, map[string][]string{
		ordering.FoundMessageWithoutOrder: {"!", "ghost", "zz 幽霊"}, ordering.FoundOrderLate: {no("gone and past due")},
	})

	s.requireOneDueTime()
	require.Equal(t, outbox.Dead, s.message("dead", no("dead")).State, "a dead message is for an operator")
	require.Equal(t, orders["gone"].DueAt, s.message("gone", no("gone")).DueAt)
	require.Equal(t, int64(1), s.number(`SELECT COUNT(*) FROM outbox_messages WHERE live_key = ? AND available_at <= UTC_TIMESTAMP(6)`,
		key("gone and past due")), "fires at once")
	for _, name := range []string{"gone and past due", "done"} {
		require.Equal(t, outbox.OutcomeDone, s.expireNow(no(name)), name)
		require.Equal(t, model.Closed, s.order(no(name)).Status, name)
	}
	require.Equal(t, model.Paid, s.order(no("paid, live")).Status)
	s.requireConserved()
}

func TestAudit_GivesAMessageTheDueTimeOfItsOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 100)
	orders := map[string]model.Order{}
	names := []string{"well", "far too late", "too late, published", "too early", "past due", "dead", "dead and late"}
	for _, name := range names {
		orders[name] = s.place(draft("a", 1))
	}
	key := func(name string) []byte { return []byte(orders[name].No) }
	nos := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, orders[name].No)
		}
		return all
	}
	s.exec(`UPDATE outbox_messages SET due_at = '2037-01-01', available_at = '2037-01-01' WHERE message_key IN (?, ?)`, key("far too late"), key("past due"))
	s.exec(`UPDATE outbox_messages SET state = 'published', due_at = due_at + INTERVAL 1 MICROSECOND, attempts = 3 WHERE message_key = ?`, key("too late, published"))
	s.exec(`UPDATE outbox_messages SET due_at = due_at - INTERVAL 1 SECOND WHERE message_key = ?`, key("too early"))
	s.exec(`UPDATE orders SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 DAY WHERE no IN (?, ?)`, orders["past due"].No, orders["dead and late"].No)
	s.exec(`UPDATE outbox_messages SET state = 'dead', available_at = NULL, due_at = '2037-01-01' WHERE message_key IN (?, ?)`, key("dead"), key("dead and late"))

	differ := nos("far too late", "too late, published", "too early", "past due")
	late := map[string][]string{ordering.FoundOrderLate: nos("dead and late")}
	want := map[string][]string{ordering.FoundOrderDueDiffers: differ, ordering.FoundOrderLate: nos("dead and late")}
	before := s.contents()
	s.requireFound(true, 0, want)
	require.Equal(t, before, s.contents(), "a dry run changes nothing")
	s.requireFound(false, 4, want)
	for _, name := range names {
		m, generation := s.message(name, orders[name].No), int64(1)
		if slices.Contains(differ, orders[name].No) {
			generation = 2
			require.Equal(t, outbox.Scheduled, m.State, name)
			require.Equal(t, s.order(orders[name].No).DueAt, m.DueAt, name)
		}
		require.Equal(t, generation, m.Generation, name)
	}
	require.Equal(t, outbox.Dead, s.message("dead", orders["dead"].No).State, "a dead message is for an operator")
	require.Equal(t, int64(1), s.number(`SELECT COUNT(*) FROM outbox_messages WHERE live_key = ? AND available_at <= UTC_TIMESTAMP(6)`,
		key("past due")), "fires at once")
	s.requireFound(false, 0, map[string][]string{ordering.FoundOrderLate: nos("past due", "dead and late")})

	d := s.delivery(orders["past due"].No)
	d.Generation = 1
	outcome, err := s.handle(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeStale, outcome, "what was on its way with the wrong due time")
	require.Equal(t, outbox.OutcomeDone, s.expireNow(orders["past due"].No))
	s.requireFound(false, 0, late)
	s.requireConserved()
}

// Between an audit's two readings of the message the order is extended: neither what the walks saw nor what was judged is a fault.
func TestAudit_AnOrderThatIsExtendedWhileItIsJudgedIsNoFinding(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	s, auditor := openShop(t, dsn, ordering.Config{}), openShop(t, dsn, ordering.Config{})
	s.stock("a", 10)
	o := s.place(draft("a", 1))
	extend := func() {
		o.DueAt = o.DueAt.Add(time.Hour)
		_, err := s.Extend(t.Context(), o.No, o.DueAt)
		require.NoError(t, err)
	}
	extended := 0
	rows := auditor.gorm.Callback().Row()
	require.NoError(t, rows.After("gorm:row").Register("after the orders", func(db *gorm.DB) {
		if strings.Contains(db.Statement.SQL.String(), "status = 'pending' AND no >") {
			extend()
			extended++
		}
	}))
	require.NoError(t, rows.After("gorm:row").Register("while it is judged", func(db *gorm.DB) {
		if strings.Contains(db.Statement.SQL.String(), "FROM orders WHERE no =") {
			extend()
			extended++
		}
	}))
	report, err := auditor.audit(outbox.Scope{DryRun: true}, auditor.Checks()[0])
	require.NoError(t, err)
	require.Equal(t, 2, extended)
	require.Zero(t, report.Found(), "%v", report.Findings)
	require.Equal(t, int64(3), s.message("", o.No).Generation)
	s.requireOneDueTime()
}

// The relay, the broker or the workers may be down for long, and everything be as it should be otherwise.
func TestAudit_ReportsOrdersThatAreLate(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 100)
	late, closed := map[string]string{}, s.place(draft("a", 1))
	for _, state := range []string{"scheduled", "published", "dead"} {
		late[state] = s.place(draft("a", 1)).No
		s.place(draft("a", 1)) // not due yet
	}
	recent := s.place(draft("a", 1)).No
	age := func(no string, minutes int) {
		s.exec(`UPDATE orders SET due_at = UTC_TIMESTAMP(6) - INTERVAL ? MINUTE WHERE no = ?`, minutes, no)
		s.exec(`UPDATE outbox_messages SET due_at = (SELECT due_at FROM orders WHERE no = ?), available_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE message_key = ?`, no, []byte(no))
	}
	want := map[string][]string{}
	for state, no := range late {
		age(no, 11)
		s.exec(`UPDATE outbox_messages SET state = ? WHERE message_key = ?`, state, []byte(no))
		want[ordering.FoundOrderLate] = append(want[ordering.FoundOrderLate], no)
	}
	age(recent, 9)
	age(closed.No, 11)
	_, err := s.Cancel(t.Context(), closed.No)
	require.NoError(t, err)
	before := s.contents()
	for _, dryRun := range []bool{true, false} {
		report, err := s.audit(outbox.Scope{DryRun: dryRun}, s.Checks()...)
		require.NoError(t, err)
		finding := report.Of(ordering.FoundOrderLate)
		require.ElementsMatch(t, want[ordering.FoundOrderLate], finding.IDs)
		require.Zero(t, finding.Mended)
		require.Equal(t, before, s.contents(), "late, not lost")
	}
	require.Equal(t, outbox.OutcomeDone, s.expireNow(late["published"]))
}

// message is the live message of an order.
func (s *shop) message(what, no string) outbox.Record {
	s.t.Helper()
	r, err := s.store.Lookup(s.t.Context(), model.TopicExpire, no)
	require.NoError(s.t, err, what)
	return r
}

// expireNow is expire for an order that has had more than one message.
func (s *shop) expireNow(no string) outbox.Outcome {
	s.t.Helper()
	s.exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) WHERE live_key = ?`, []byte(no))
	d := s.delivery(no)
	m := s.message("", no)
	d.ID, d.Generation = m.ID, m.Generation
	outcome, err := s.handle(s.t.Context(), d)
	require.NoError(s.t, err)
	return outcome
}

// Faults at random places, more of them than a page holds, so that they fall on the borders of pages as well.
func TestAudit_MissesNothingAtTheBordersOfPages(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 1001, 2100} {
		s := newShop(t, ordering.Config{})
		s.fill(n)
		// Digests of the number, so that each sort of fault is spread evenly and falls anywhere.
		s.exec(`UPDATE orders SET status = 'paid' WHERE CRC32(no) % 9 = 0`)
		s.exec(`DELETE FROM outbox_messages WHERE CRC32(CONCAT('x', message_key)) % 7 = 0`)
		s.exec(`DELETE FROM orders WHERE CRC32(CONCAT('y', no)) % 11 = 0`)
		want := map[string]int{
			ordering.FoundOrderWithoutMessage: int(s.number(`SELECT COUNT(*) FROM orders WHERE status = 'pending'
				AND no NOT IN (SELECT live_key FROM outbox_messages)`)),
			ordering.FoundMessageOfFinishedOrder: int(s.number(`SELECT COUNT(*) FROM outbox_messages
				WHERE live_key IN (SELECT no FROM orders WHERE status = 'paid')`)),
			ordering.FoundMessageWithoutOrder: int(s.number(`SELECT COUNT(*) FROM outbox_messages WHERE live_key NOT IN (SELECT no FROM orders)`)),
		}
		pending := int(s.number("SELECT COUNT(*) FROM orders WHERE status = 'pending'"))
		for _, dryRun := range []bool{true, false} {
			report, err := s.audit(outbox.Scope{DryRun: dryRun}, s.Checks()[0])
			require.NoError(t, err)
			require.Equal(t, pending, report.Looked["orders"])
			for kind, found := range want {
				require.Positive(t, found)
				require.Equal(t, found, report.Of(kind).Found, kind)
				require.Equal(t, !dryRun && kind != ordering.FoundMessageWithoutOrder, report.Of(kind).Mended > 0, kind)
			}
			require.Equal(t, want[ordering.FoundOrderWithoutMessage]+want[ordering.FoundMessageOfFinishedOrder]+
				want[ordering.FoundMessageWithoutOrder], report.Found())
		}
		s.requireFoundNothingBut(ordering.FoundMessageWithoutOrder)
	}
}

func (s *shop) requireFoundNothingBut(kind string) {
	s.t.Helper()
	report, err := s.audit(outbox.Scope{}, s.Checks()[0])
	require.NoError(s.t, err)
	require.Equal(s.t, report.Of(kind).Found, report.Found(), "%v", report.Findings)
}

// fill writes n pending orders and their messages, without items.
func (s *shop) fill(n int) {
	s.t.Helper()
	digit := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5" +
		" UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	numbers := fmt.Sprintf(`(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d AS seq
		FROM %[1]s AS a, %[1]s AS b, %[1]s AS c, %[1]s AS d, %[1]s AS e, %[1]s AS f) AS numbers WHERE seq < %[2]d`, digit, n)
	s.exec(`INSERT INTO outbox_messages (shard, topic, message_key, live_key, content_type, payload, due_at, available_at, created_at)
		SELECT seq % 16, 'order.expire', CONCAT('n', LPAD(seq, 6, '0')), CONCAT('n', LPAD(seq, 6, '0')), 'application/json', '{}',
			'2099-01-01', '2099-01-01', '2026-01-01' FROM ` + numbers)
	s.exec(`INSERT INTO orders (no, user_id, kind, total, message_id, due_at, created_at)
		SELECT message_key, 'ann', 'normal', 1, id, due_at, created_at FROM outbox_messages WHERE topic = 'order.expire'`)
}

// A hundred at a time, on every path that finishes or moves an order, while one audit follows the other.
func TestAudit_FindsNothingAmongOrdersThatComeAndGo(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	s, auditor := openShop(t, dsn, ordering.Config{Normal: time.Microsecond}), openShop(t, dsn, ordering.Config{})
	s.db.SetMaxOpenConns(30)
	skus := []string{"a", "b", "c"}
	for _, sku := range skus {
		s.stock(sku, 1_000_000)
	}
	store, err := s.store.StoreID(t.Context())
	require.NoError(t, err)
	var traffic sync.WaitGroup
	var enough atomic.Bool
	var finished [4]int64
	var mu sync.Mutex
	for worker := range 100 {
		traffic.Go(func() {
			for i := 0; !enough.Load(); i++ {
				d := draft(skus[(worker+i)%3], 1)
				way := (worker + i) % 4
				if way == 3 {
					d.Kind = model.Presale
				}
				o, err := s.Place(t.Context(), d, "")
				if err != nil {
					t.Error("place:", err)
					return
				}
				switch way {
				case 0:
					_, err = s.Pay(t.Context(), o.No, model.Payment{ID: o.No, Amount: o.Total})
				case 1:
					_, err = s.Cancel(t.Context(), o.No)
				case 2: // its time has come already
					delivery := outbox.Delivery{Store: store, Topic: model.TopicExpire, Key: o.No, Generation: 1, Payload: model.OrderPayload{No: o.No}.Encode()}
					var m outbox.Record
					if m, err = s.store.Lookup(t.Context(), model.TopicExpire, o.No); err == nil {
						delivery.ID = m.ID
						_, err = s.handle(t.Context(), delivery)
					}
				case 3: // and stays pending
					_, err = s.Extend(t.Context(), o.No, o.DueAt.Add(time.Hour))
				}
				if err != nil {
					t.Error(way, err)
					return
				}
				mu.Lock()
				finished[way]++
				mu.Unlock()
			}
		})
	}
	const rounds = 30
	began, looked := time.Now(), 0
	for _, dryRun := range []bool{true, false} {
		report, err := auditor.audit(outbox.Scope{DryRun: dryRun}, outbox.Check{Name: "again and again", Run: func(ctx context.Context, p *outbox.Pass) error {
			var errs []error
			for range rounds {
				for _, check := range auditor.Checks() {
					errs = append(errs, check.Run(ctx, p))
				}
			}
			return errors.Join(errs...)
		}})
		require.NoError(t, err)
		require.Zero(t, report.Found(), "%v", report.Findings)
		looked += report.Looked["orders"]
		require.Equal(t, 3*rounds, report.Looked["products"])
	}
	require.Greater(t, looked, rounds)
	enough.Store(true)
	traffic.Wait()
	t.Logf("%v orders, %d looked at, in %v", finished, looked, time.Since(began))
	for way, n := range finished {
		require.Positive(t, n, way)
	}
	s.requireConserved()
	s.requireOneDueTime()
}

// The walk over messages may have ended when the walk over orders meets one that was placed since. It is no finding, also if it is
// finished while it is judged: a message that is missing after its order was read as pending has done its work in between.
func TestAudit_AnOrderThatIsFinishedWhileItIsJudgedIsNoFinding(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	s, auditor := openShop(t, dsn, ordering.Config{}), openShop(t, dsn, ordering.Config{})
	s.stock("a", 10)
	s.fill(1000)
	s.exec(`UPDATE orders SET no = CONCAT('00', no)`) // before the numbers that Place makes
	s.exec(`UPDATE outbox_messages SET message_key = CONCAT('00', message_key), live_key = IF(id % 1000 = 7, NULL, CONCAT('00', live_key)),
		state = IF(id % 1000 = 7, 'done', state)`)
	missing := s.number("SELECT COUNT(*) FROM outbox_messages WHERE live_key IS NULL")
	require.Equal(t, int64(1), missing, "a page of messages that is not full, and one of orders that is")

	pages, placed := 0, ""
	asks := func(db *gorm.DB, what string) bool { return strings.Contains(db.Statement.SQL.String(), what) }
	rows := auditor.gorm.Callback().Row()
	require.NoError(t, rows.Before("gorm:row").Register("place", func(db *gorm.DB) {
		if asks(db, "status = 'pending' AND no >") {
			if pages++; pages == 2 {
				placed = s.place(draft("a", 1)).No
			}
		}
	}))
	require.NoError(t, rows.After("gorm:row").Register("pay", func(db *gorm.DB) {
		if asks(db, "FROM orders WHERE no =") && slices.Contains(db.Statement.Vars, any(placed)) {
			_, err := s.Pay(t.Context(), placed, model.Payment{ID: placed, Amount: 250})
			require.NoError(t, err)
		}
	}))
	report, err := auditor.audit(outbox.Scope{DryRun: true}, auditor.Checks()[0])
	require.NoError(t, err)
	require.NotEmpty(t, placed)
	require.Equal(t, 1001, report.Looked["orders"], "the one that was placed is looked at")
	require.Equal(t, 1, report.Of(ordering.FoundOrderUnfinished).Found)
	require.Equal(t, 1, report.Found(), "%v", report.Findings)
}

// Of audits that run at the same time one mends, and all end with the same orders and messages.
func TestAudit_SeveralAtOnceMendOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.fill(200)
	s.exec(`DELETE FROM outbox_messages WHERE CRC32(message_key) % 2 = 0`)
	missing := int(200 - s.number("SELECT COUNT(*) FROM outbox_messages"))
	s.exec(`UPDATE orders SET status = 'closed' WHERE CRC32(no) % 2 = 1 AND CRC32(no) % 3 = 0`)
	finished := int(s.number("SELECT COUNT(*) FROM orders WHERE status = 'closed'"))
	s.exec(`UPDATE outbox_messages SET due_at = '2098-01-01' WHERE CRC32(message_key) % 6 = 1`)
	moved := int(s.number("SELECT COUNT(*) FROM outbox_messages WHERE due_at < '2099-01-01'"))
	report, err := s.audit(outbox.Scope{}, outbox.Check{Name: "four at once", Run: func(ctx context.Context, p *outbox.Pass) error {
		errs := make([]error, 4)
		var all []func()
		for i := range errs {
			all = append(all, func() { errs[i] = s.Checks()[0].Run(ctx, p) })
		}
		together(all...)
		return errors.Join(errs...)
	}})
	require.NoError(t, err)
	require.Equal(t, missing, report.Of(ordering.FoundOrderWithoutMessage).Mended)
	require.Equal(t, finished, report.Of(ordering.FoundMessageOfFinishedOrder).Mended)
	require.Equal(t, moved, report.Of(ordering.FoundOrderDueDiffers).Mended)
	require.Positive(t, moved)
	require.Equal(t, missing+finished+moved, report.Found())
	require.Equal(t, int64(moved), s.number("SELECT COUNT(*) FROM outbox_messages WHERE generation = 2 AND due_at = '2099-01-01'"))
	s.requireOneDueTime()
}

// Whoever has an order or a message locked is at it: the audit waits a second, and leaves it to the next one.
func TestAudit_LeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 10)
	lost, paid := s.place(draft("a", 1)), s.place(draft("a", 1))
	_, err := s.Pay(t.Context(), paid.No, model.Payment{ID: "p", Amount: 250})
	require.NoError(t, err)
	s.exec(`DELETE FROM outbox_messages WHERE message_key = ?`, []byte(lost.No))
	s.exec(revive, []byte(paid.No))
	holders := []interface{ Rollback() error }{
		s.hold(`UPDATE orders SET version = version + 1 WHERE no = ?`, lost.No),
		s.hold(`UPDATE outbox_messages SET held = TRUE WHERE message_key = ?`, []byte(paid.No)),
	}
	began := time.Now()
	s.requireFound(false, 0, map[string][]string{})
	require.Less(t, time.Since(began), 8*time.Second)
	for _, held := range holders {
		require.NoError(t, held.Rollback())
	}
	s.requireFound(false, 2, map[string][]string{
		ordering.FoundOrderWithoutMessage: {lost.No}, ordering.FoundMessageOfFinishedOrder: {paid.No},
	})
	s.requireFound(false, 0, map[string][]string{})
	var wait int64 // the pool's connections are as before
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT @@innodb_lock_wait_timeout").Scan(&wait))
	require.Greater(t, wait, int64(1))
}

// What cannot be mended is reported, and does not keep the others from it.
func TestAudit_OneThatCannotBeMendedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 10)
	first, last := s.place(draft("a", 1)), s.place(draft("a", 1))
	s.exec(`DELETE FROM outbox_messages`)
	s.exec(`UPDATE orders SET version = 4294967295 WHERE no = ?`, first.No) // cannot be counted any further
	report, err := s.audit(outbox.Scope{})
	require.ErrorContains(t, err, first.No)
	require.Equal(t, outbox.Finding{Found: 2, Mended: 1, IDs: []string{first.No, last.No}}, report.Of(ordering.FoundOrderWithoutMessage))
	require.Len(t, report.Errors, 1)
	require.Equal(t, int64(1), s.number("SELECT COUNT(*) FROM outbox_messages"), "nothing is left of the one")
	require.Equal(t, last.DueAt, s.message("last", last.No).DueAt)
}

func TestAudit_AnOutageIsAnError(t *testing.T) {
	t.Parallel()
	mariadb := devtest.MariaDB(t)
	s := openShop(t, mariadb.DSN("test"), ordering.Config{})
	s.stock("a", 10)
	s.place(draft("a", 1))
	checks := append([]outbox.Check{{Name: "kill", Run: func(context.Context, *outbox.Pass) error { return mariadb.Kill() }}}, s.Checks()...)
	report, err := s.audit(outbox.Scope{}, checks...)
	require.Error(t, err)
	require.Zero(t, report.Found())
	text := strings.Join(report.Errors, "\n")
	for _, check := range s.Checks() {
		require.Contains(t, text, check.Name)
	}
}

func TestAudit_FindsStockThatItsMovementsDoNotExplain(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	spoil := map[string]string{
		"well": "", "unused": "",
		"more":       `UPDATE products SET available = available + 1 WHERE sku = ?`,
		"shifted":    `UPDATE products SET available = available + 1, reserved = reserved - 1 WHERE sku = ?`,
		"oversold":   `UPDATE products SET reserved = reserved - 1, sold = sold + 1 WHERE sku = ?`,
		"no reserve": `DELETE FROM stock_movements WHERE sku = ? AND direction = 'reserve' LIMIT 1`,
		"no release": `DELETE FROM stock_movements WHERE sku = ? AND direction = 'release'`,
		"no sell":    `DELETE FROM stock_movements WHERE sku = ? AND direction = 'sell'`,
		"no adjust":  `DELETE FROM stock_movements WHERE sku = ? AND direction = 'adjust'`,
		"no rows":    `DELETE FROM stock_movements WHERE sku = ?`,
		"below zero": `UPDATE products p JOIN stock_movements m ON m.sku = p.sku AND m.direction = 'adjust'
			SET p.available = p.available - 50, m.quantity = m.quantity - 50 WHERE p.sku = ?`,
	}
	var wrong, reserved []string
	for sku, statement := range spoil {
		sku = strings.ReplaceAll(sku, " ", "-")
		s.stock(sku, 10)
		if sku != "unused" {
			s.place(draft(sku, 1))
			paid, closed := s.place(draft(sku, 2)), s.place(draft(sku, 3))
			_, err := s.Pay(t.Context(), paid.No, model.Payment{ID: paid.No, Amount: paid.Total})
			require.NoError(t, err)
			_, err = s.Cancel(t.Context(), closed.No)
			require.NoError(t, err)
		}
		if statement != "" {
			s.exec(statement, sku)
			wrong = append(wrong, sku)
			if strings.Contains(statement, "SET reserved") || strings.Contains(statement, ", reserved") {
				reserved = append(reserved, sku)
			}
		}
	}
	require.Len(t, reserved, 2)
	before := s.contents()
	for _, dryRun := range []bool{true, false, false} {
		s.requireFound(dryRun, 0, map[string][]string{ordering.FoundStock: wrong, ordering.FoundReserved: reserved})
	}
	require.Equal(t, before, s.contents(), "which of the numbers is wrong, only the shelves can tell")
}

// The movements of an order that was finished by hand agree with the product, and its units are reserved for ever.
func TestAudit_FindsUnitsThatNoPendingOrderHolds(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	orders := map[string]model.Order{}
	for _, sku := range []string{"well", "closed", "paid", "opened", "gone", "more", "unused"} {
		s.stock(sku, 10)
		if sku != "unused" {
			orders[sku] = s.place(draft(sku, 2))
			s.place(draft(sku, 3))
		}
	}
	_, err := s.Cancel(t.Context(), orders["opened"].No)
	require.NoError(t, err)
	s.requireFound(false, 0, map[string][]string{})
	s.exec(`UPDATE orders SET status = 'closed' WHERE no = ?`, orders["closed"].No)
	s.exec(`UPDATE orders SET status = 'paid' WHERE no = ?`, orders["paid"].No)
	s.exec(`UPDATE orders SET status = 'pending' WHERE no = ?`, orders["opened"].No)
	s.exec(`DELETE FROM order_items WHERE order_no = ?`, orders["gone"].No)
	s.exec(`UPDATE order_items SET quantity = 4 WHERE order_no = ?`, orders["more"].No)
	want := []string{"closed", "gone", "more", "opened", "paid"}
	for range 2 {
		report, err := s.audit(outbox.Scope{}, s.Checks()[1:]...)
		require.NoError(t, err)
		require.Equal(t, outbox.Finding{Found: 5, IDs: want}, report.Of(ordering.FoundReserved))
		require.Equal(t, 5, report.Found(), "its movements explain every number: %v", report.Findings)
	}

	// Set back to pending by hand, with its message canceled by an audit meanwhile, it ends as orders do.
	closed := orders["closed"].No
	report, err := s.audit(outbox.Scope{}, s.Checks()[0])
	require.NoError(t, err)
	require.Contains(t, report.Of(ordering.FoundMessageOfFinishedOrder).IDs, closed)
	s.exec(`UPDATE orders SET status = 'pending' WHERE no = ?`, closed)
	report, err = s.audit(outbox.Scope{}, s.Checks()...)
	require.NoError(t, err)
	require.Equal(t, []string{closed}, report.Of(ordering.FoundOrderUnfinished).IDs)
	require.Equal(t, outbox.OutcomeDone, s.expireNow(closed))
	require.Equal(t, model.Closed, s.order(closed).Status)
	require.Equal(t, model.Product{SKU: "closed", Name: "Product closed", Available: 7, Reserved: 3}, s.product("closed"))
}

// TestOperations_TheSQLOfTheGuideIsValid runs it as it stands there.
func TestOperations_TheSQLOfTheGuideIsValid(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("MUG", 10)
	held := s.place(draft("MUG", 2))
	s.exec(`UPDATE orders SET status = 'closed', due_at = '2026-01-01' WHERE no = ?`, held.No)
	guide, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	blocks := strings.Split(string(guide), "```sql\n")[1:]
	require.Len(t, blocks, 5)
	var found []string
	for _, block := range blocks {
		statement, _, _ := strings.Cut(block, ";\n```")
		var rows []map[string]any
		require.NoError(t, s.gorm.Raw(statement).Scan(&rows).Error, statement)
		for _, row := range rows {
			found = append(found, fmt.Sprint(row))
		}
	}
	require.Len(t, found, 2, "the product, and the order that holds units")
	require.Contains(t, found[0], "adjusted:10 available:8")
	require.Contains(t, found[1], "order_no:"+held.No+" quantity:2 status:closed")
}

func TestAudit_LooksAtEveryProduct(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	const n = 2777
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("('sku%05d', 'x', 0)", i)
	}
	s.exec(`INSERT INTO products (sku, name, available) VALUES ` + strings.Join(rows, ", "))
	s.exec(`UPDATE products SET available = 1 WHERE sku IN ('sku00000', 'sku00009', 'sku00010', 'sku02776')`)
	report, err := s.audit(outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, n, report.Looked["products"])
	require.Equal(t, []string{"sku00000", "sku00009", "sku00010", "sku02776"}, report.Of(ordering.FoundStock).IDs)
}

// 200,000 orders: every row is read once along its index, and no order that is finished.
func TestAudit_ReadsIndexesInOrderAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	const n = 200_000
	s.fill(n)
	s.exec("UPDATE orders SET status = 'paid', message_id = 0 WHERE no < 'n050000'")
	s.exec("UPDATE outbox_messages SET state = 'canceled', live_key = NULL WHERE message_key < 'n050000'")
	s.stock("hot", 1)
	s.exec(`INSERT INTO stock_movements (sku, order_no, item, direction, quantity, moved_at)
		SELECT 'hot', no, 0, IF(status = 'paid', 'sell', 'reserve'), 1, created_at FROM orders`)
	s.exec(`INSERT INTO order_items (order_no, item, sku, quantity, price) SELECT no, 0, 'hot', 1, 1 FROM orders`)
	for _, table := range []string{"orders", "order_items", "outbox_messages", "stock_movements"} {
		s.exec("ANALYZE TABLE " + table)
	}
	for index, query := range map[string]struct {
		sql  string
		args []any
	}{"by_status": {ordering.PendingOrders, []any{600, "n100000", 1000}}, "by_sku": {ordering.StockSums, []any{"n100000", 1000}}} {
		var plan []map[string]any
		require.NoError(t, s.gorm.Raw("EXPLAIN FORMAT=TRADITIONAL "+query.sql, query.args...).Scan(&plan).Error)
		for _, row := range plan {
			extra := fmt.Sprint(row["Extra"])
			require.NotContains(t, extra, "filesort", row)
			require.NotContains(t, extra, "temporary", row)
			if row["table"] != "products" {
				require.Equal(t, index, fmt.Sprint(row["key"]), row)
				if index == "by_sku" {
					require.Contains(t, extra, "Using index", row)
				}
			}
		}
	}

	s.db.SetMaxOpenConns(2) // the reconciler's own, and the one of which the engine's reads are counted
	reads := func() (total int) {
		var rows []struct{ Value int }
		require.NoError(t, s.gorm.Raw("SHOW SESSION STATUS LIKE 'Handler_read%'").Scan(&rows).Error)
		for _, row := range rows {
			total += row.Value
		}
		return total
	}
	// Of pending orders: the order and its message; the order, its item, and the group that this belongs to.
	for i, want := range [][2]int{{300_000, 305_000}, {200_000, 205_000}, {300_000, 605_000}} {
		var read int
		began := time.Now()
		report, err := s.audit(outbox.Scope{}, outbox.Check{Name: "count reads", Run: func(ctx context.Context, p *outbox.Pass) error {
			before := reads()
			err := s.Checks()[i].Run(ctx, p)
			read = reads() - before
			return err
		}})
		require.NoError(t, err)
		t.Logf("%s: %d reads in %v", s.Checks()[i].Name, read, time.Since(began))
		// Of the hot one there was never as much.
		require.Equal(t, []int{min(i, 1), i % 2, i / 2}, []int{report.Found(), report.Of(ordering.FoundStock).Found, report.Of(ordering.FoundReserved).Found})
		require.GreaterOrEqual(t, read, want[0])
		require.Less(t, read, want[1])
	}
}

func TestForget_DeletesOldEffectsFromTheFront(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{Retention: time.Hour})
	s.exec(`INSERT INTO effects (message_id, generation, effected_at) VALUES ` + strings.TrimSuffix(strings.Repeat(
		"(1, 1, UTC_TIMESTAMP(6) - INTERVAL 61 MINUTE), ", 1600), ", "))
	s.exec(`INSERT INTO effects (message_id, generation, effected_at) VALUES (2, 1, UTC_TIMESTAMP(6) - INTERVAL 59 MINUTE), (3, 1, UTC_TIMESTAMP(6))`)
	n, err := s.Forget(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1600), n)
	require.Equal(t, int64(5), s.number("SELECT SUM(message_id) FROM effects"))
	n, err = s.Forget(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}
