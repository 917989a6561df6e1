package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"
)

// span is a step of the schedule as it really was.
type span struct {
	begin, end time.Time
	silent     bool // confirmed messages were lost and nothing told
}

// calendar is when something was wrong. Times are UTC; the database's clock is this machine's.
type calendar []span

// class says what a message that was due at due, and written at created, had to live with.
type class int

const (
	quiet   class = iota // nothing was wrong, nor had been for a while
	faulty               // something was wrong around its due time
	unheard              // it may have been lost without a sign, and then has to wait for the grace
)

func (c calendar) classify(created, due time.Time) class {
	for _, s := range c {
		if due.Add(bound).After(s.begin) && due.Before(s.end.Add(settling)) {
			return faulty
		}
	}
	for _, s := range c {
		if s.silent && created.Before(s.end.Add(settling)) && due.After(s.begin) {
			return unheard
		}
	}
	return quiet
}

// Lateness is how late effects were.
type Lateness struct {
	N             int
	P50, P99, Max time.Duration
}

func latenessOf(all []time.Duration) Lateness {
	slices.Sort(all)
	return Lateness{N: len(all), P50: quantile(all, 0.5), P99: quantile(all, 0.99), Max: quantile(all, 1)}
}

// quantile is the smallest value that at least the share q of all values does not exceed; 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(1, int(math.Ceil(q*float64(len(sorted)))))-1]
}

// Latenesses are those of messages of each class.
type Latenesses struct{ Quiet, Faulty, Unheard Lateness }

// lateness compares the times of effects with due times, and names the messages that were late although nothing was wrong.
func lateness(ctx context.Context, db *sql.DB, when calendar) (Latenesses, []Violation, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	var (
		all  [unheard + 1][]time.Duration
		late []string
		c    = &checker{ctx: ctx, db: db}
	)
	c.rows(`SELECT m.id, DATE_FORMAT(m.created_at, '%Y-%m-%d %H:%i:%s.%f'), DATE_FORMAT(m.due_at, '%Y-%m-%d %H:%i:%s.%f'),
			DATE_FORMAT(MIN(e.effected_at), '%Y-%m-%d %H:%i:%s.%f')
		FROM effects e JOIN outbox_messages m ON m.id = e.message_id
		GROUP BY m.id, m.created_at, m.due_at ORDER BY m.id`, func(rows *sql.Rows) error {
		var (
			id    int64
			texts [3]string
			times [3]time.Time
		)
		if err := rows.Scan(&id, &texts[0], &texts[1], &texts[2]); err != nil {
			return err
		}
		for i := range times {
			var err error
			if times[i], err = time.Parse(timeLayout, texts[i]); err != nil {
				return err
			}
		}
		created, due, effected := times[0], times[1], times[2]
		class, by := when.classify(created, due), effected.Sub(due)
		all[class] = append(all[class], by)
		if class == quiet && by > bound {
			late = append(late, fmt.Sprintf("message %d, due at %s, was %.1f s late", id, due.Format(time.TimeOnly), by.Seconds()))
		}
		return nil
	})
	for i, text := range late {
		if i == mostShown {
			c.add(OnTime, "and %d more", len(late)-mostShown)
			break
		}
		c.add(OnTime, "%s", text)
	}
	return Latenesses{latenessOf(all[quiet]), latenessOf(all[faulty]), latenessOf(all[unheard])}, c.found, c.err
}
