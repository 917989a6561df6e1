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

// class says what a message had to live with.
type class int

const (
	quiet   class = iota // nothing was wrong when it was due, nor had been for a while
	faulty               // something was wrong around its due time
	unheard              // it may have been lost without a sign, and then has to wait for the grace
	handed               // nothing was wrong when it was due, but something when the broker was given it
	classes
)

// classify is about a message that was written, that the broker last confirmed, and that was due at these times.
func (c calendar) classify(created, published, due time.Time) class {
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
	if c.stalled(published) > 0 {
		return handed
	}
	return quiet
}

// stalled is how long something was wrong when the broker confirmed a message. The broker counts a message's delay from when it
// takes it, so that a message which waited in front of a broker that stood still fires as much too late.
func (c calendar) stalled(published time.Time) (longest time.Duration) {
	for _, s := range c {
		if !published.Before(s.begin) && published.Before(s.end.Add(settling)) {
			longest = max(longest, s.end.Sub(s.begin))
		}
	}
	return longest
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
type Latenesses struct{ Quiet, Faulty, Unheard, Handed Lateness }

// lateness compares the times of effects with due times, and names the messages that were late although nothing was wrong.
func lateness(ctx context.Context, db *sql.DB, when calendar) (Latenesses, []Violation, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	var (
		all  [classes][]time.Duration
		late []string
		c    = &checker{ctx: ctx, db: db}
	)
	c.rows(`SELECT m.id, DATE_FORMAT(m.created_at, '%Y-%m-%d %H:%i:%s.%f'), DATE_FORMAT(m.published_at, '%Y-%m-%d %H:%i:%s.%f'),
			DATE_FORMAT(m.due_at, '%Y-%m-%d %H:%i:%s.%f'), DATE_FORMAT(MIN(e.effected_at), '%Y-%m-%d %H:%i:%s.%f')
		FROM effects e JOIN outbox_messages m ON m.id = e.message_id
		GROUP BY m.id, m.created_at, m.published_at, m.due_at ORDER BY m.id`, func(rows *sql.Rows) error {
		var (
			id    int64
			texts [4]string
			times [4]time.Time
		)
		if err := rows.Scan(&id, &texts[0], &texts[1], &texts[2], &texts[3]); err != nil {
			return err
		}
		for i := range times {
			var err error
			if times[i], err = time.Parse(timeLayout, texts[i]); err != nil {
				return err
			}
		}
		created, published, due, effected := times[0], times[1], times[2], times[3]
		class, by := when.classify(created, published, due), effected.Sub(due)
		all[class] = append(all[class], by)
		if class == quiet && by > bound || class == handed && by > bound+when.stalled(published) {
			late = append(late, fmt.Sprintf("message %d, published at %s, due at %s, was %.1f s late",
				id, published.Format(time.TimeOnly), due.Format(time.TimeOnly), by.Seconds()))
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
	return Latenesses{latenessOf(all[quiet]), latenessOf(all[faulty]), latenessOf(all[unheard]), latenessOf(all[handed])}, c.found, c.err
}
