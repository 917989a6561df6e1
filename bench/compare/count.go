package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// tally is what became of the orders of a phase.
type tally struct {
	Placed, Paid, Closed int
	Never                int           // pending, although its time is over
	Early                int           // closings before the due time
	Twice                int           // orders that were closed more than once
	Again                int           // times that a contender asked to close what it had closed
	Vain                 int           // times that it asked to close what was paid
	Both                 int           // orders that were paid and closed
	After                int           // orders that were closed when their phase was over
	First, P50, P99, Max time.Duration // lateness
	Pending              int           // pending, and not yet due
	Spread               time.Duration // from the first due time to the last
	Drained              time.Duration // from the first due time to the last closing, of those that were closed
}

// count reads from a contender's shop what became of the orders of a phase, which was over at end; empty: of all phases.
func count(ctx context.Context, db querier, phase string, end time.Time) (t tally, err error) {
	const of = " FROM orders AS o WHERE (o.phase = ? OR ? = '')"
	one := func(into *int, query string) {
		if err == nil {
			err = db.QueryRowContext(ctx, query, phase, phase).Scan(into)
		}
	}
	one(&t.Placed, "SELECT COUNT(*)"+of)
	one(&t.Paid, "SELECT COUNT(*)"+of+" AND o.status = 'paid'")
	one(&t.Closed, "SELECT COUNT(*)"+of+" AND o.status = 'closed'")
	one(&t.Never, "SELECT COUNT(*)"+of+" AND o.status = 'pending' AND o.due_at < UTC_TIMESTAMP(6)")
	const happened = " AND (SELECT COUNT(*) FROM journal AS j WHERE j.order_no = o.no AND j.what = 'closed') "
	one(&t.Twice, "SELECT COUNT(*)"+of+happened+"> 1")
	one(&t.Both, "SELECT COUNT(*)"+of+happened+"> 0 AND EXISTS (SELECT 1 FROM journal AS p WHERE p.order_no = o.no AND p.what = 'paid')")
	one(&t.Pending, "SELECT COUNT(*)"+of+" AND o.status = 'pending' AND o.due_at >= UTC_TIMESTAMP(6)")
	const vain = "SELECT COUNT(*) FROM orders AS o JOIN journal AS j ON j.order_no = o.no WHERE (o.phase = ? OR ? = '') AND j.what = 'in vain' AND o.status = "
	one(&t.Again, vain+"'closed'")
	one(&t.Vain, vain+"'paid'")
	var micros int
	one(&micros, "SELECT COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(o.due_at), MAX(c.at)), 0) FROM orders AS o JOIN journal AS c ON c.order_no = o.no AND c.what = 'closed' WHERE (o.phase = ? OR ? = '')")
	t.Drained = time.Duration(micros) * time.Microsecond
	one(&micros, "SELECT COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(o.due_at), MAX(o.due_at)), 0)"+of)
	t.Spread = time.Duration(micros) * time.Microsecond
	if err != nil {
		return t, fmt.Errorf("count orders: %w", err)
	}
	const after = "SELECT COUNT(*)" + of + " AND EXISTS (SELECT 1 FROM journal AS c WHERE c.order_no = o.no AND c.what = 'closed' AND c.at > ?)"
	if err := db.QueryRowContext(ctx, after, phase, phase, end.UTC().Format("2006-01-02 15:04:05.000000")).Scan(&t.After); err != nil {
		return t, fmt.Errorf("count orders: %w", err)
	}
	late, err := lateness(ctx, db, phase)
	if err != nil || len(late) == 0 {
		return t, err
	}
	for _, d := range late {
		if d < 0 {
			t.Early++
		}
	}
	t.First, t.P50, t.P99, t.Max = late[0], quantile(late, .5), quantile(late, .99), late[len(late)-1]
	return t, nil
}

// lateness is how long after their due times orders were closed, sorted.
func lateness(ctx context.Context, db querier, phase string) (all []time.Duration, err error) {
	rows, err := db.QueryContext(ctx, `SELECT TIMESTAMPDIFF(MICROSECOND, o.due_at, j.at) FROM journal AS j JOIN orders AS o ON o.no = j.order_no
		WHERE j.what = 'closed' AND (o.phase = ? OR ? = '')`, phase, phase)
	if err != nil {
		return nil, fmt.Errorf("read lateness: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var micros int64
		if err := rows.Scan(&micros); err != nil {
			return nil, err
		}
		all = append(all, time.Duration(micros)*time.Microsecond)
	}
	slices.Sort(all)
	return all, rows.Err()
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// querier is a pool, or a transaction in which all counts are of one moment.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// conserved says whether what a shop's products say adds up with its orders.
func conserved(ctx context.Context, db querier) (bool, error) {
	var units, reserved, held int64
	if err := db.QueryRowContext(ctx, "SELECT SUM(available + reserved + sold), SUM(reserved) FROM products").Scan(&units, &reserved); err != nil {
		return false, err
	}
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(SUM(quantity), 0) FROM orders WHERE status = 'pending'").Scan(&held); err != nil {
		return false, err
	}
	return units == products*stock && reserved == held, nil
}

// usage is what a user has asked of the database.
type usage struct{ Statements, Rows float64 }

func (u usage) minus(v usage) usage { return usage{u.Statements - v.Statements, u.Rows - v.Rows} }

// used reads what the database has counted of a user's statements, and of the rows that they have read.
func used(ctx context.Context, db *sql.DB, user string) (u usage, err error) {
	err = db.QueryRowContext(ctx, `SELECT COALESCE(SUM(SELECT_COMMANDS + UPDATE_COMMANDS + OTHER_COMMANDS), 0), COALESCE(SUM(ROWS_READ), 0)
		FROM information_schema.USER_STATISTICS WHERE USER = ?`, user).Scan(&u.Statements, &u.Rows)
	return u, err
}
