package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Overview is how the ledger is, at a glance. Whatever there is in it, reading it is bounded: counts stop at a limit.
type Overview struct {
	Now     time.Time // by the database's clock
	Verdict Verdict
	// Counts are the messages of each state, by its name, and kept deliveries as "unrouted".
	Counts map[string]Count
	// DueNextHour are the messages that are to take effect in each minute from Now on, scheduled or published.
	DueNextHour []DueMinute
	Lateness    Lateness
	Workers     []Peer
	LastPass    *Run // nil: none is on record
	LastAudit   *Run
}

// Count is a number that was counted up to a limit.
type Count struct {
	N    int
	More bool // there are more than N
}

// DueMinute is a minute with what is due in it.
type DueMinute struct {
	From time.Time
	Count
}

// Lateness is how late messages were that have lately taken effect: 1,024 at most, of the last hour.
type Lateness struct {
	Since   time.Time // when the first of them took effect
	Buckets []LatenessBucket
	P50     time.Duration
	P99     time.Duration
	Max     time.Duration
	Of      int // messages
}

// LatenessBucket counts messages that were at most so late, and later than the bucket before says. The last has no limit: UpTo is 0.
type LatenessBucket struct {
	UpTo  time.Duration
	Count int
}

const (
	countedRows   = 10_000 // of a state
	countedMinute = 500    // due in a minute
	// Of what has taken effect lately, of each shard.
	latelyRows = 64
	lately     = time.Hour
)

// Overview reads it.
func (o *Operator) Overview(ctx context.Context) (v Overview, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if v.Now, err = o.store.readClock(ctx); err != nil {
		return v, err
	}
	if v.Counts, err = o.counts(ctx); err != nil {
		return v, fmt.Errorf("count messages: %w", err)
	}
	if v.DueNextHour, err = o.dueNextHour(ctx, v.Now); err != nil {
		return v, fmt.Errorf("count what is due in the next hour: %w", err)
	}
	if v.Lateness, err = o.lateness(ctx, v.Now); err != nil {
		return v, fmt.Errorf("read what has taken effect lately: %w", err)
	}
	if v.Workers, err = o.store.Peers(ctx); err != nil {
		return v, err
	}
	for kind, into := range map[RunKind]**Run{RunPass: &v.LastPass, RunAudit: &v.LastAudit} {
		run, err := o.store.LastRun(ctx, kind)
		switch {
		case errors.Is(err, ErrNoRun):
		case err != nil:
			return v, err
		default:
			*into = &run
		}
	}
	v.Verdict, err = o.verdict(ctx, &v)
	return v, err
}

// counts goes along the index backwards: at its front are rows that were settled and that the server has not yet removed from it.
func (o *Operator) counts(ctx context.Context) (map[string]Count, error) {
	var (
		branches []string
		args     []any
	)
	for _, s := range everyState() {
		// index: due (state), and nothing but the index
		branches = append(branches, `(SELECT ?, COUNT(*) FROM (SELECT id FROM outbox_messages FORCE INDEX (due)
			WHERE state = ? ORDER BY shard DESC, available_at DESC LIMIT ?) AS counted)`)
		args = append(args, string(s), string(s), countedRows+1)
	}
	branches = append(branches, `(SELECT 'unrouted', COUNT(*) FROM (SELECT id FROM outbox_unrouted ORDER BY id DESC LIMIT ?) AS counted)`)
	args = append(args, countedRows+1)
	counts := map[string]Count{}
	_, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, _ *struct{}) error {
		var (
			state string
			n     int
		)
		err := rows.Scan(&state, &n)
		counts[state] = upTo10k(n)
		return err
	}, strings.Join(branches, " UNION ALL "), args...)
	return counts, err
}

// upTo10k is what was counted up to one more than countedRows.
func upTo10k(n int) Count { return Count{min(n, countedRows), n > countedRows} }

// dueNextHour counts minute by minute what is scheduled, and what is published and has yet to take effect: that is looked at again a
// grace after its time.
func (o *Operator) dueNextHour(ctx context.Context, now time.Time) ([]DueMinute, error) {
	const minutes = 60
	due := make([]DueMinute, minutes)
	for i := range due {
		due[i].From = now.Add(time.Duration(i) * time.Minute)
	}
	for _, of := range []struct {
		state State
		after time.Duration
	}{{Scheduled, 0}, {Published, o.cfg.Grace}} {
		branches := make([]string, minutes)
		var args []any
		for i := range branches {
			// index: due (state, shard, available_at), and nothing but the index
			branches[i] = `(SELECT ?, COUNT(*) FROM (SELECT id FROM outbox_messages FORCE INDEX (due)
				WHERE state = ? AND shard IN (` + marks(shards) + `) AND available_at >= ? AND available_at < ? LIMIT ?) AS counted)`
			from := due[i].From.Add(of.after)
			args = append(append(append(args, i, string(of.state)), anys(everyShard())...), dueText(from), dueText(from.Add(time.Minute)), countedMinute+1)
		}
		_, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, _ *struct{}) error {
			var i, n int
			if err := rows.Scan(&i, &n); err != nil {
				return err
			}
			due[i].N += n
			return nil
		}, strings.Join(branches, " UNION ALL "), args...)
		if err != nil {
			return nil, err
		}
	}
	for i := range due {
		due[i].Count = Count{min(due[i].N, countedMinute), due[i].N > countedMinute}
	}
	return due, nil
}

// latenessLimits are those of the buckets but the last.
func latenessLimits() []time.Duration {
	return []time.Duration{
		5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
		500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour,
	}
}

// lateness reads the last rows of each shard that are done. Where a shard has more, what others have from before its oldest is left out, so
// that all shards count alike.
func (o *Operator) lateness(ctx context.Context, now time.Time) (l Lateness, err error) {
	const branch = `(SELECT shard, untracked, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', finished_at) AS finished,
			TIMESTAMPDIFF(MICROSECOND, ` + waitsFrom + `, finished_at)
		FROM outbox_messages FORCE INDEX (due) WHERE state = 'done' AND shard = ? ORDER BY available_at DESC LIMIT ?)` // index: due (state, shard, available_at)
	var args []any
	for _, shard := range everyShard() {
		args = append(args, shard, latelyRows)
	}
	type row struct {
		shard          int
		untracked      bool
		finished, late int64
	}
	rows, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.shard, &r.untracked, &r.finished, &r.late)
	}, strings.Join(slices.Repeat([]string{branch}, shards), " UNION ALL "), args...)
	if err != nil {
		return l, err
	}
	l.Since = now.Add(-lately)
	var (
		counts [shards]int
		oldest [shards]int64
	)
	for _, r := range rows {
		if counts[r.shard]++; oldest[r.shard] == 0 || r.finished < oldest[r.shard] {
			oldest[r.shard] = r.finished
		}
	}
	for shard, n := range counts {
		if n == latelyRows && oldest[shard] > l.Since.UnixMicro() {
			l.Since = fromMicros(oldest[shard])
		}
	}
	var late []time.Duration
	for _, r := range rows {
		if !r.untracked && r.finished >= l.Since.UnixMicro() {
			late = append(late, time.Duration(r.late)*time.Microsecond)
		}
	}
	l.fill(late)
	return l, nil
}

// fill puts the figures together, of messages that were so late.
func (l *Lateness) fill(late []time.Duration) {
	slices.Sort(late)
	limits := latenessLimits()
	l.Buckets = make([]LatenessBucket, len(limits)+1)
	for i, limit := range limits {
		l.Buckets[i].UpTo = limit
	}
	for _, d := range late {
		i, _ := slices.BinarySearch(limits, d)
		l.Buckets[i].Count++
	}
	if l.Of = len(late); l.Of == 0 {
		return
	}
	rank := func(p float64) time.Duration { return late[max(0, int(math.Ceil(p*float64(len(late))))-1)] }
	l.P50, l.P99, l.Max = rank(0.5), rank(0.99), late[len(late)-1]
}
