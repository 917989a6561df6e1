package ordering

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// The kinds of findings that Checks report.
const (
	// FoundOrderWithoutMessage: an order is pending and its message is gone, or never was. Mended: it has a new one.
	FoundOrderWithoutMessage = "order_without_message"
	// FoundOrderUnfinished: an order is pending although its message is done or canceled. Mended: it has a new one.
	FoundOrderUnfinished = "order_unfinished"
	// FoundMessageOfFinishedOrder: a message is live although its order is paid or closed. Mended: it is canceled.
	FoundMessageOfFinishedOrder = "message_of_finished_order"
	// FoundMessageWithoutOrder: a message is live and names an order that does not exist. Left to an operator.
	FoundMessageWithoutOrder = "message_without_order"
	// FoundOrderDueDiffers: a pending order and its message have different due times. Mended: the message has the order's. A dead
	// message is left alone: it is reported as dead.
	FoundOrderDueDiffers = "order_due_differs"
	// FoundOrderLate: a pending order is past its due time by more than lateAfter although its message is live. It is not lost, so
	// nothing is mended: the relay, the broker or the workers are down or too slow, or the message is dead.
	FoundOrderLate = "order_late"
	// FoundStock: the units of a product are not what its movements say. Left to an operator.
	FoundStock = "stock"
	// FoundReserved: the reserved units of a product are not those of its pending orders. Left to an operator.
	FoundReserved = "reserved"
)

// lateAfter is how far past its due time a pending order is worth a report by itself.
const lateAfter = 10 * time.Minute

// Checks are the audits of orders and stock. They work on the pool in short statements, beside any number of orders that are
// placed and finished meanwhile: what an unfinished transaction is about to put right is never found. What somebody has locked for
// longer than a second is left to the next audit.
func (s *Service) Checks() []outbox.Check {
	return []outbox.Check{
		{Name: "orders against the ledger", Run: s.auditOrders, Kinds: []string{
			FoundOrderWithoutMessage, FoundOrderUnfinished, FoundMessageOfFinishedOrder, FoundMessageWithoutOrder,
			FoundOrderDueDiffers, FoundOrderLate,
		}},
		{Name: "stock against its movements", Run: s.auditStock, Kinds: []string{FoundStock}},
		{Name: "reserved units against pending orders", Run: s.auditReserved, Kinds: []string{FoundReserved}},
	}
}

// auditOrders looks at the messages that close orders and not at reminders: a missing one keeps no order from its end, and one that is left
// over finds its order finished.
//
// It walks over pending orders and live messages side by side, in the order of their keys. Every pending order has a
// live message with its due time, and every live message a pending order; what differs is judged on its own, since the two walks
// read at different times. A fault that cannot be mended does not keep the others from it.
func (s *Service) auditOrders(ctx context.Context, p *outbox.Pass) error {
	orders := walk{read: func(ctx context.Context, after string, limit int) ([]entry, error) {
		page, err := run(ctx, s, "read pending orders", func(ctx context.Context) (page []entry, err error) {
			err = s.db.WithContext(ctx).Raw(pendingOrders, int64(lateAfter/time.Second), after, limit).Scan(&page).Error
			return page, err
		})
		p.Looked("orders", len(page))
		return page, err
	}}
	messages := walk{read: func(ctx context.Context, after string, limit int) ([]entry, error) {
		live, err := s.store.Live(ctx, model.TopicExpire, after, limit)
		page := make([]entry, len(live))
		for i, m := range live {
			page[i] = entry{No: m.Key, DueUs: m.DueAt.UnixMicro()}
		}
		return page, err
	}}
	var broken error
	for {
		order, hasOrder, err := orders.head(ctx)
		if err != nil {
			return err
		}
		message, hasMessage, err := messages.head(ctx)
		if err != nil {
			return err
		}
		switch {
		case !hasOrder && !hasMessage:
			return broken
		case hasOrder && hasMessage && order.No == message.No:
			if order.DueUs != message.DueUs {
				err = s.auditDue(ctx, p, order)
			} else if order.Late { // whatever has become of it since: it was pending then, and late
				p.Found(FoundOrderLate, order.No, false)
			}
			orders.skip()
			messages.skip()
		case hasOrder && (!hasMessage || order.No < message.No):
			err = s.auditOrder(ctx, p, order.No)
			orders.skip()
		default:
			err = s.auditMessage(ctx, p, message.No)
			messages.skip()
		}
		if err != nil && (errors.Is(err, model.ErrUnavailable) || ctx.Err() != nil) {
			return err
		}
		if broken == nil {
			broken = err
		}
	}
}

// index: by_status (status, no), and the row for its due time
const pendingOrders = `SELECT no, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', due_at) AS due_us,
		due_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND AS late
	FROM orders FORCE INDEX (by_status) WHERE status = 'pending' AND no > ? ORDER BY no LIMIT ?`

// entry is a pending order, or a live message by the number of the order that it names.
type entry struct {
	No    string
	DueUs int64
	Late  bool // of an order: its due time is over by more than lateAfter
}

// walk goes over entries in the order of the bytes of their numbers and holds a page of them.
type walk struct {
	read  func(ctx context.Context, after string, limit int) ([]entry, error)
	page  []entry
	last  string
	ended bool
}

const walkPage = 1000

// head is the entry at which the walk stands; false at its end.
func (w *walk) head(ctx context.Context) (entry, bool, error) {
	if len(w.page) == 0 && !w.ended {
		page, err := w.read(ctx, w.last, walkPage)
		if err != nil {
			return entry{}, false, err
		}
		w.page, w.ended = page, len(page) < walkPage
		if len(page) > 0 {
			w.last = page[len(page)-1].No
		}
	}
	if len(w.page) == 0 {
		return entry{}, false, nil
	}
	return w.page[0], true, nil
}

func (w *walk) skip() { w.page = w.page[1:] }

// auditOrder judges an order that was read as pending and without a live message.
func (s *Service) auditOrder(ctx context.Context, p *outbox.Pass, no string) error {
	var o orderState
	judge := func(ctx context.Context) (kind string, err error) {
		// First the message, then the order: one that is pending afterwards was so already when it had no message. The other way
		// round it might have been finished in between.
		live, err := s.live(ctx, no)
		if err != nil || live.ID != 0 {
			return "", err
		}
		if o, err = s.orderState(s.db.WithContext(ctx), no, ""); err != nil || o.Status != model.Pending {
			return "", err
		}
		last, err := s.store.LookupID(ctx, o.MessageID)
		switch {
		case errors.Is(err, outbox.ErrNoMessage):
			return FoundOrderWithoutMessage, nil
		case err != nil:
			return "", err
		case last.Topic != model.TopicExpire || last.Key != no:
			return FoundOrderWithoutMessage, nil
		case last.State == outbox.Done || last.State == outbox.Canceled:
			return FoundOrderUnfinished, nil
		}
		return "", nil // somebody has given it one meanwhile
	}
	return s.report(ctx, p, no, judge, func(ctx context.Context, tx *gorm.DB) error {
		id, err := s.enqueue(ctx, tx, model.TopicExpire, no, fromMicros(o.DueUs))
		if errors.Is(err, outbox.ErrDuplicateKey) {
			return errNoFault
		}
		if err != nil {
			return err
		}
		locked, err := s.orderState(tx, no, "FOR UPDATE")
		if err != nil {
			return err
		}
		if locked != o { // it was finished or extended
			return errNoFault
		}
		return tx.Exec(`UPDATE orders SET message_id = ?, version = version + 1 WHERE no = ?`, id, no).Error
	})
}

// auditDue judges an order whose message was read with another due time.
func (s *Service) auditDue(ctx context.Context, p *outbox.Pass, seen entry) error {
	var (
		m outbox.Record
		o orderState
	)
	judge := func(ctx context.Context) (kind string, err error) {
		// The message, the order, and the message again: if that has not been moved in between, nor has the order, since both are
		// moved by one commit.
		if m, err = s.live(ctx, seen.No); err != nil || m.ID == 0 {
			return "", err
		}
		if o, err = s.orderState(s.db.WithContext(ctx), seen.No, ""); err != nil || o.Status != model.Pending {
			return "", err
		}
		again, err := s.live(ctx, seen.No)
		switch {
		case err != nil || again.ID != m.ID || again.Generation != m.Generation:
			return "", err
		case again.State != outbox.Dead && again.DueAt.UnixMicro() != o.DueUs:
			return FoundOrderDueDiffers, nil
		case seen.Late && o.DueUs == seen.DueUs:
			return FoundOrderLate, nil
		}
		return "", nil
	}
	return s.report(ctx, p, seen.No, judge, func(ctx context.Context, tx *gorm.DB) error {
		err := s.store.Reschedule(ctx, tx, model.TopicExpire, seen.No, fromMicros(o.DueUs))
		if errors.Is(err, outbox.ErrNoMessage) {
			return errNoFault
		}
		if err != nil {
			return err
		}
		locked, err := s.orderState(tx, seen.No, "FOR UPDATE")
		if err != nil {
			return err
		}
		if locked != o { // it was finished or extended, or another audit was here
			return errNoFault
		}
		return tx.Exec(`UPDATE orders SET message_id = ?, version = version + 1 WHERE no = ?`, m.ID, seen.No).Error
	})
}

// auditMessage judges a live message whose order was not read as pending.
func (s *Service) auditMessage(ctx context.Context, p *outbox.Pass, key string) error {
	judge := func(ctx context.Context) (string, error) {
		o, err := s.orderState(s.db.WithContext(ctx), key, "")
		switch {
		case err != nil || o.Status == model.Pending: // placed after the page of orders was read
			return "", err
		case o.Status == "": // a message is not committed before its order, and no order is ever deleted
			return FoundMessageWithoutOrder, nil
		}
		// The order is finished for good. A message that is live even now should not be.
		live, err := s.live(ctx, key)
		if err != nil || live.ID == 0 {
			return "", err
		}
		return FoundMessageOfFinishedOrder, nil
	}
	return s.report(ctx, p, key, judge, func(ctx context.Context, tx *gorm.DB) error {
		err := s.store.Cancel(ctx, tx, model.TopicExpire, key)
		if errors.Is(err, outbox.ErrNoMessage) {
			return errNoFault
		}
		return err
	})
}

// orderState is what an audit needs to know of an order; the zero value if there is none.
type orderState struct {
	Status    model.Status
	MessageID int64
	DueUs     int64
	Version   int64
}

func (s *Service) orderState(tx *gorm.DB, no, lock string) (o orderState, err error) {
	if !model.ValidID(no) {
		return o, nil
	}
	err = tx.Raw(`SELECT status, message_id, version, `+micros("due_at")+` AS due_us FROM orders WHERE no = ? `+lock, no).Scan(&o).Error
	return o, err
}

// live is the order's live message; the zero value if there is none.
func (s *Service) live(ctx context.Context, no string) (outbox.Record, error) {
	m, err := s.store.Lookup(ctx, model.TopicExpire, no)
	if errors.Is(err, outbox.ErrNoMessage) {
		return outbox.Record{}, nil
	}
	return m, err
}

// errNoFault says that what looked like a fault is none any more, or that somebody is at it.
var errNoFault = errors.New("ordering: no fault any more")

// report tells the pass what judge says of id, the kind of its fault or nothing, and mends it first if it can be mended.
func (s *Service) report(ctx context.Context, p *outbox.Pass, id string, judge func(ctx context.Context) (string, error),
	mend func(ctx context.Context, tx *gorm.DB) error,
) error {
	kind, err := run(ctx, s, "audit order "+id, judge)
	if err != nil || kind == "" {
		return err
	}
	if p.DryRun() || kind == FoundMessageWithoutOrder || kind == FoundOrderLate {
		p.Found(kind, id, false)
		return nil
	}
	_, err = run(ctx, s, "mend order "+id, func(ctx context.Context) (none struct{}, err error) {
		return none, s.impatient(ctx, func(tx *gorm.DB) error { return mend(ctx, tx) })
	})
	if errors.Is(err, errNoFault) {
		return nil
	}
	p.Found(kind, id, err == nil)
	return err
}

// impatient runs fn in a transaction that waits for a lock for a second at most: then somebody is at it, and errNoFault comes
// back.
func (s *Service) impatient(ctx context.Context, fn func(tx *gorm.DB) error) error {
	return s.db.WithContext(ctx).Connection(func(conn *gorm.DB) (err error) {
		conn = conn.Session(&gorm.Session{NewDB: true, Context: ctx})
		if err := conn.Exec("SET SESSION innodb_lock_wait_timeout = 1").Error; err != nil {
			return err
		}
		defer func() { // must reach the server even if ctx has ended: the connection goes back to the pool
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			err = errors.Join(err, conn.WithContext(ctx).Exec("SET SESSION innodb_lock_wait_timeout = DEFAULT").Error)
		}()
		err = conn.Transaction(fn)
		if isLockWait(err) {
			return errNoFault
		}
		return err
	})
}
