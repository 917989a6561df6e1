package chaos

import (
	"database/sql"
	"fmt"
	"time"
)

// timeLayout is how the check has the database write its times.
const timeLayout = "2006-01-02 15:04:05.000000"

// stored is an order as the database has it.
type stored struct {
	no, kind, status, reason string
	total                    int64
	due, closed              time.Time
}

// answers compares the database with what the clients were told. An order whose client got no answer may exist or not; one
// that nobody asked for may not, and nobody may have two.
func (c *checker) answers(l *Ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byUser := map[string][]stored{}
	c.rows(`SELECT no, user_id, kind, status, COALESCE(close_reason, ''), total, DATE_FORMAT(due_at, '%Y-%m-%d %H:%i:%s.%f'),
			COALESCE(DATE_FORMAT(closed_at, '%Y-%m-%d %H:%i:%s.%f'), '')
		FROM orders ORDER BY no`, func(rows *sql.Rows) error {
		var (
			o                 stored
			user, due, closed string
		)
		err := rows.Scan(&o.no, &user, &o.kind, &o.status, &o.reason, &o.total, &due, &closed)
		if err != nil {
			return err
		}
		if o.due, err = time.Parse(timeLayout, due); err != nil {
			return err
		}
		if closed != "" {
			if o.closed, err = time.Parse(timeLayout, closed); err != nil {
				return err
			}
		}
		byUser[user] = append(byUser[user], o)
		return nil
	})
	payments, refunds := c.ids(`SELECT payment_id, order_no FROM payments`), c.ids(`SELECT payment_id, order_no FROM refunds`)
	if c.err != nil {
		return
	}
	var problems []string
	for _, want := range l.orders {
		got := byUser[want.User]
		delete(byUser, want.User)
		problems = append(problems, want.compare(got, payments, refunds)...)
	}
	for user, orders := range byUser {
		problems = append(problems, fmt.Sprintf("%d orders of %s, who asked for none", len(orders), user))
	}
	for i, p := range problems {
		if i == mostShown {
			c.add(AnswersHold, "and %d more", len(problems)-mostShown)
			break
		}
		c.add(AnswersHold, "%s", p)
	}
}

// ids reads the order of each payment.
func (c *checker) ids(query string) map[string]string {
	out := map[string]string{}
	c.rows(query, func(rows *sql.Rows) error {
		var id, no string
		err := rows.Scan(&id, &no)
		out[id] = no
		return err
	})
	return out
}

func (o *Order) compare(got []stored, payments, refunds map[string]string) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: ", o.User)+fmt.Sprintf(format, args...))
	}
	switch {
	case len(got) > 1:
		say("asked for one order and has %d", len(got))
		return problems
	case o.No == "":
		return problems
	case len(got) == 0:
		say("order %s was confirmed and is not there", o.No)
		return problems
	}
	is := got[0]
	if is.no != o.No || is.kind != o.Kind || is.total != o.Total {
		say("order %s, %s, %d was confirmed; there is %s, %s, %d", o.No, o.Kind, o.Total, is.no, is.kind, is.total)
	}
	if is.due.Before(o.Due) {
		say("order %s was confirmed to be due at %v and is due at %v", o.No, o.Due, is.due)
	}
	if is.reason == "timeout" && is.closed.Before(o.Due) {
		say("order %s was confirmed to be due at %v and was closed at %v", o.No, o.Due, is.closed)
	}
	if o.Canceled && is.status != "closed" {
		say("order %s was confirmed to be closed and is %s", o.No, is.status)
	}
	for _, id := range o.Paid {
		_, refunded := refunds[id]
		if payments[id] != o.No || is.status != "paid" && !refunded {
			say("payment %s of order %s was confirmed; it is written: %t, given back: %t, the order is %s",
				id, o.No, payments[id] == o.No, refunded, is.status)
		}
	}
	return problems
}
