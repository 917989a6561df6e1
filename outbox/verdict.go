package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Verdict says in plain words whether all is well.
type Verdict struct {
	OK   bool
	Text string // such as "all on time", or "7 late, oldest 3 min: broker unreachable since 12:04 UTC"
	// Late is what is past its due time by more than 5 s and has taken no effect: not handed over, not taken effect, or waiting for
	// another attempt. Of those that wait for an attempt, only those are known that are among the next to be handed over.
	Late   Count
	Oldest time.Duration // how late the most late of them is
	Why    string        // what is the matter, as far as it can be told; empty: nothing is
}

const (
	// How long after its due time a message without effect is late: a burst of some ten thousand is through by then.
	lateFrom = 5 * time.Second
	// Of the next messages of each shard, how many are looked at for those that wait for another attempt.
	retriesLooked = 64
	// Late messages that are counted.
	lateRows = 1000
	// SQL for the time from which a message waits: one that is written after its due time is not late before.
	waitsFrom = "GREATEST(due_at, created_at)"
)

// lateness of what has had no effect yet.
type overdue struct {
	scheduled, published, retrying int
	oldest                         time.Time // since when it waits
	lastError                      string    // of what waits for another attempt
}

func (o *Operator) verdict(ctx context.Context, v *Overview) (Verdict, error) {
	late, err := o.late(ctx, v.Now)
	if err != nil {
		return Verdict{}, fmt.Errorf("look for what is late: %w", err)
	}
	verdict := Verdict{Late: upToLate(late.scheduled + late.published + late.retrying)}
	if !late.oldest.IsZero() {
		verdict.Oldest = v.Now.Sub(late.oldest)
	}
	trouble := trouble(v.Workers)
	verdict.Why = cmp.Or(trouble, late.why(v.Workers))
	dead := v.Counts[string(Dead)]
	verdict.OK = verdict.Late.N == 0 && trouble == "" && dead.N == 0
	verdict.Text = verdict.text(dead)
	return verdict, nil
}

// text is the verdict in a sentence.
func (d *Verdict) text(dead Count) string {
	var parts []string
	switch {
	case d.Late.N == 0 && d.Why == "" && dead.N > 0:
		return fmt.Sprintf("%s dead, all others on time", dead)
	case d.Late.N > 0:
		parts = append(parts, fmt.Sprintf("%s late, oldest %s", d.Late, roughly(d.Oldest)))
	case d.Why != "":
		parts = append(parts, "nothing is late")
	default:
		parts = append(parts, "all on time")
	}
	if dead.N > 0 {
		parts = append(parts, fmt.Sprintf("%s dead", dead))
	}
	text := strings.Join(parts, ", ")
	switch {
	case d.Why != "" && d.Late.N > 0:
		text += ": " + d.Why
	case d.Why != "":
		text += ", but " + d.Why
	}
	return text
}

// String is the count, with a plus where there are more.
func (c Count) String() string {
	if c.More {
		return fmt.Sprintf("%d+", c.N)
	}
	return fmt.Sprint(c.N)
}

// upToLate is what was counted up to one more than lateRows.
func upToLate(n int) Count { return Count{min(n, lateRows), n > lateRows} }

// roughly is a duration in the unit that fits.
func roughly(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// why says what the rows and the work queues tell of the reason.
func (l *overdue) why(workers []Peer) string {
	var reasons []string
	if l.retrying > 0 {
		reasons = append(reasons, fmt.Sprintf("%d wait for another attempt (%s)", l.retrying, cmp.Or(clip(l.lastError), "no error is known")))
	}
	if l.scheduled > 0 {
		reasons = append(reasons, fmt.Sprintf("%s not handed over to the broker", upToLate(l.scheduled)))
	}
	if l.published > 0 {
		text := fmt.Sprintf("%s handed over without effect yet", upToLate(l.published))
		if topic, ready := longest(workers); ready > 0 {
			text += fmt.Sprintf(", work queue %s holds %d", topic, ready)
		}
		reasons = append(reasons, text)
	}
	return strings.Join(reasons, "; ")
}

// longest is the longest of the work queues that workers have seen.
func longest(workers []Peer) (topic string, ready int) {
	for _, w := range workers {
		for _, q := range w.Queues {
			if w.Alive() && q.Ready > ready {
				topic, ready = q.Topic, q.Ready
			}
		}
	}
	return topic, ready
}

// trouble is what is wrong with workers and their broker, whether or not something is late because of it; empty if nothing is, or none of
// them says anything of its broker.
func trouble(workers []Peer) string {
	var (
		alive, told, away, blocked int
		seen                       time.Time // when a worker has last said something
		awaySince, blockedSince    Peer
	)
	unconsumed := map[string]bool{}
	for _, w := range workers {
		if w.SeenAt.After(seen) {
			seen = w.SeenAt
		}
		if !w.Alive() {
			continue
		}
		alive++
		if !w.Connected && w.Reason == "" && w.Since.IsZero() {
			continue
		}
		// It had only begun to connect when it was last heard of.
		if !w.Connected && !w.Since.IsZero() && w.SeenAt.Sub(w.Since) < lateFrom {
			continue
		}
		told++
		switch {
		case !w.Connected:
			if away++; away == 1 || w.Since.After(awaySince.Since) {
				awaySince = w
			}
		case w.Blocked:
			if blocked++; blocked == 1 || w.Since.After(blockedSince.Since) {
				blockedSince = w
			}
		}
		for _, q := range w.Queues {
			if w.Connected && q.Consumers == 0 {
				unconsumed[q.Topic] = true
			}
		}
	}
	switch {
	case alive == 0 && len(workers) == 0:
		return "no worker runs"
	case alive == 0:
		return "no worker runs (one that has not ended was last seen at " + clockTime(seen) + ")"
	case told > 0 && away == told:
		return "broker unreachable since " + because(awaySince)
	case away > 0:
		return fmt.Sprintf("%d of %d workers have no broker since %s", away, told, because(awaySince))
	case told > 0 && blocked == told:
		return "the broker takes no messages since " + because(blockedSince)
	case len(unconsumed) > 0:
		return "nobody consumes " + strings.Join(slices.Sorted(maps.Keys(unconsumed)), ", ")
	}
	return ""
}

func because(w Peer) string {
	text := "an unknown time"
	if !w.Since.IsZero() {
		text = clockTime(w.Since)
	}
	if w.Reason != "" {
		text += " (" + clip(w.Reason) + ")"
	}
	return text
}

// clockTime is a time of the last hours as people say it.
func clockTime(t time.Time) string { return t.UTC().Format("15:04 UTC") }

// late counts what is past its time, and finds the oldest.
func (o *Operator) late(ctx context.Context, now time.Time) (l overdue, err error) {
	before := now.Add(-lateFrom)
	for _, of := range []struct {
		state State
		after time.Duration // of its due time, when it is looked at again
		into  *int
	}{{Scheduled, 0, &l.scheduled}, {Published, o.cfg.Grace, &l.published}} {
		limit := dueText(before.Add(of.after))
		args := append(append([]any{string(of.state)}, anys(everyShard())...), limit, lateRows+1)
		// index: due (state, shard, available_at), and nothing but the index
		if err := o.store.sql.QueryRowContext(ctx, `SELECT COUNT(*) FROM (SELECT id FROM outbox_messages FORCE INDEX (due)
			WHERE state = ? AND shard IN (`+marks(shards)+`) AND available_at < ? LIMIT ?) AS counted`, args...).Scan(of.into); err != nil {
			return l, err
		}
		if *of.into == 0 {
			continue
		}
		oldest, err := o.oldest(ctx, of.state, limit)
		if err != nil {
			return l, err
		}
		l.note(oldest)
	}
	// What was tried or repaired is looked at again later than that, and is late all the same.
	for state, after := range map[State]time.Duration{Scheduled: 0, Published: o.cfg.Grace} {
		retries, err := o.retries(ctx, now, state, after)
		if err != nil {
			return l, err
		}
		for _, r := range retries {
			l.retrying++
			if l.note(r.due) || l.lastError == "" {
				l.lastError = r.lastError
			}
		}
	}
	return l, nil
}

// note takes a due time in, and tells whether it is the oldest.
func (l *overdue) note(due time.Time) bool {
	is := l.oldest.IsZero() || due.Before(l.oldest)
	if is {
		l.oldest = due
	}
	return is
}

// oldest is the earliest time from which a row waits, of the first of each shard that are late. They come in the order in which they are looked at, and
// what was repaired has moved back in that.
func (o *Operator) oldest(ctx context.Context, state State, limit string) (time.Time, error) {
	var (
		branches []string
		args     []any
	)
	for _, shard := range everyShard() {
		// index: due (state, shard, available_at)
		branches = append(branches, `(SELECT `+micros1970(waitsFrom)+` AS due FROM outbox_messages FORCE INDEX (due)
			WHERE state = ? AND shard = ? AND available_at < ? ORDER BY available_at LIMIT ?)`)
		args = append(args, string(state), shard, limit, retriesLooked)
	}
	var due int64
	err := o.store.sql.QueryRowContext(ctx, `SELECT COALESCE(MIN(due), 0) FROM (`+strings.Join(branches, " UNION ALL ")+`) AS oldest`, args...).Scan(&due)
	return fromMicros(due), err
}

type retry struct {
	due       time.Time
	lastError string
}

// retries are messages of a state that are past their time and wait for another attempt, of those that are to be looked at next, which is so
// long after they fire.
func (o *Operator) retries(ctx context.Context, now time.Time, state State, after time.Duration) ([]retry, error) {
	var (
		branches []string
		args     []any
	)
	for _, shard := range everyShard() {
		// index: due (state, shard, available_at)
		branches = append(branches, `(SELECT due, last_error FROM (SELECT `+micros1970(waitsFrom)+` AS due, last_error
			FROM outbox_messages FORCE INDEX (due) WHERE state = ? AND shard = ? AND available_at >= ? AND available_at < ?
			ORDER BY available_at LIMIT ?) AS soon WHERE due < ?)`)
		args = append(args, string(state), shard, dueText(now.Add(after-lateFrom)), dueText(now.Add(after+o.store.longestPause())), retriesLooked,
			now.Add(-lateFrom).UnixMicro())
	}
	return queryAll(ctx, o.store.sql, func(rows *sql.Rows, r *retry) error {
		var (
			due       int64
			lastError *string
		)
		err := rows.Scan(&due, &lastError)
		if r.due = fromMicros(due); lastError != nil {
			r.lastError = *lastError
		}
		return err
	}, strings.Join(branches, " UNION ALL "), args...)
}
