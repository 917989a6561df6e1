package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// walk reads on along an index from a place, about n rows.
type walk func(ctx context.Context, from place, n int) (step, error)

// step is what a walk has read.
type step struct {
	rows  []place
	at    place // where it stands afterwards
	ended bool
}

// maxMicros is 9999-12-31 in microseconds since 1970: later than any time in the ledger.
const maxMicros = int64(253402214400) * 1_000_000

// walks are the ways along indexes that pass by all rows which f picks, one after the other, chosen so that they pass by few others.
func (o *Operator) walks(f *Filter) (walks []walk) {
	add := func(w func(n int) walk) { walks = append(walks, w(len(walks))) }
	states := f.states()
	byState := func(states []State, shards []int) {
		for _, s := range states {
			add(func(n int) walk { return o.byState(n, s, shards, f) })
		}
	}
	live := slices.ContainsFunc(states, func(s State) bool { return s == Scheduled || s == Published || s == Dead })
	var ended []State
	for _, s := range states {
		if s == Done || s == Canceled {
			ended = append(ended, s)
		}
	}
	switch {
	case f.Key != "" || f.KeyPrefix != "":
		if live {
			add(func(n int) walk { return o.byKey(n, f) })
		}
		if f.Topic != "" && f.Key != "" { // its shard is known
			byState(ended, []int{shardOf(f.Topic, f.Key)})
		} else {
			byState(ended, everyShard())
		}
	case len(states) < len(everyState()) && (f.State != "" || f.Topic == ""), !f.DueFrom.IsZero(), !f.DueBefore.IsZero(), f.Error != "":
		byState(states, everyShard())
	case f.Topic != "":
		add(func(n int) walk { return o.byKey(n, f) })
		add(func(n int) walk { return o.withoutKey(n, f.Topic) })
	default:
		add(o.byID)
	}
	return walks
}

func everyShard() []int {
	all := make([]int, shards)
	for i := range all {
		all[i] = i
	}
	return all
}

// byID passes by all rows, the newest first.
func (o *Operator) byID(number int) walk {
	return func(ctx context.Context, from place, n int) (step, error) {
		// index: primary
		rows, err := o.places(ctx, number, `SELECT '', 0, id FROM outbox_messages WHERE id < ? ORDER BY id DESC LIMIT ?`, beforeOrAll(from.ID), n)
		return stepOf(from, rows, n), err
	}
}

// withoutKey passes by the rows of a topic that no key leads to, because they have ended or never had one, the newest first.
func (o *Operator) withoutKey(number int, topic string) walk {
	return func(ctx context.Context, from place, n int) (step, error) {
		// index: live (topic, live_key), with the id
		rows, err := o.places(ctx, number, `SELECT '', 0, id FROM outbox_messages FORCE INDEX (live)
			WHERE topic = ? AND live_key IS NULL AND id < ? ORDER BY id DESC LIMIT ?`, []byte(topic), beforeOrAll(from.ID), n)
		return stepOf(from, rows, n), err
	}
}

// byKey passes by live messages with keys, by topic and key.
func (o *Operator) byKey(number int, f *Filter) walk {
	condition, bounds := "", []any(nil)
	if f.Key != "" {
		condition, bounds = " AND live_key = ?", []any{[]byte(f.Key)}
	} else if f.KeyPrefix != "" {
		condition, bounds = " AND live_key >= ?", []any{[]byte(f.KeyPrefix)}
		if end := keyAfter(f.KeyPrefix); end != nil {
			condition, bounds = condition+" AND live_key < ?", append(bounds, end)
		}
	}
	return func(ctx context.Context, from place, n int) (s step, err error) {
		topic := f.Topic
		if topic == "" && from.Key == "" {
			// From.Topic has been gone through.
			if topic, err = o.nextTopic(ctx, from.Topic); err != nil || topic == "" {
				return step{ended: true, at: place{Walk: number}}, err
			}
		} else if topic == "" {
			topic = from.Topic
		}
		args := append(append([]any{[]byte(topic), []byte(from.Key)}, bounds...), n)
		// index: live (topic, live_key)
		rows, err := o.places(ctx, number, `SELECT live_key, 0, id FROM outbox_messages FORCE INDEX (live)
			WHERE topic = ? AND live_key > ?`+condition+` ORDER BY live_key LIMIT ?`, args...)
		for i := range rows {
			rows[i].Topic = topic
		}
		s = stepOf(from, rows, n)
		if s.ended && f.Topic == "" {
			s.ended, s.at = false, place{Walk: number, Topic: topic}
		}
		return s, err
	}
}

// nextTopic is the first topic of a message after topic, empty if there is none.
func (o *Operator) nextTopic(ctx context.Context, topic string) (string, error) {
	// index: live (topic)
	found, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, topic *string) error { return rows.Scan(topic) },
		`SELECT topic FROM outbox_messages FORCE INDEX (live) WHERE topic > ? ORDER BY topic LIMIT 1`, []byte(topic))
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// keyAfter is the least key that comes after all keys with the prefix, in the order of their bytes; nil if there is none.
func keyAfter(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// byState passes by the rows of a state in some shards, in the order of available_at: ascending where somebody is to touch them, descending where
// they have ended, and by descending ids where they are dead. What the filter says of due times bounds it, as far as it can.
func (o *Operator) byState(number int, state State, among []int, f *Filter) walk {
	return func(ctx context.Context, from place, n int) (step, error) {
		perShard := n/len(among) + walkRows/len(among) + 1
		query, args := o.stateQuery(state, among, f, from, perShard)
		type found struct {
			place
			shard int
		}
		rows, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, p *found) error { return rows.Scan(&p.shard, &p.At, &p.ID) }, query, args...)
		if err != nil {
			return step{}, err
		}
		// What a shard was cut short after may be followed by rows of that shard which come before those of others.
		sortPlaces := func(a, b found) int { return comparePlaces(state, a.place, b.place) }
		var (
			counts [shards]int
			last   *found
			s      = step{at: place{Walk: number}, ended: true}
		)
		for i := range rows { // in the order of each shard
			counts[rows[i].shard]++
			if counts[rows[i].shard] == perShard && (last == nil || sortPlaces(rows[i], *last) < 0) {
				last, s.ended = &rows[i], false
			}
		}
		var bound found
		if last != nil {
			bound = *last
		}
		slices.SortFunc(rows, sortPlaces)
		for _, p := range rows {
			if s.ended || sortPlaces(p, bound) <= 0 {
				p.Walk = number
				s.rows, s.at = append(s.rows, p.place), p.place
				s.at.Walk = number
			}
		}
		return s, nil
	}
}

// comparePlaces says which of two rows of a state comes first.
func comparePlaces(state State, a, b place) int {
	c := 0
	if a.At != b.At {
		c = 1
		if a.At < b.At {
			c = -1
		}
	} else if a.ID != b.ID {
		c = 1
		if a.ID < b.ID {
			c = -1
		}
	}
	if state == Scheduled || state == Published {
		return c
	}
	return -c
}

// stateQuery reads on in each shard: one range of the index `due` per branch, no sort, no lock, and the index alone.
func (o *Operator) stateQuery(state State, among []int, f *Filter, from place, perShard int) (string, []any) {
	const selects = `(SELECT shard, COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', available_at), 0), id
		FROM outbox_messages FORCE INDEX (due) WHERE state = ? AND shard = ? AND `
	var (
		branch string
		rest   []any
	)
	switch state {
	case Dead:
		branch, rest = selects+`available_at IS NULL AND id < ? ORDER BY id DESC LIMIT ?)`, []any{beforeOrAll(from.ID)}
	case Done, Canceled:
		if from.ID == 0 {
			from = place{At: maxMicros, ID: math.MaxInt64}
		}
		at := fromMicros(from.At).Format(sqlTime)
		branch = selects + `(available_at < ? OR (available_at = ? AND id < ?)) ORDER BY available_at DESC, id DESC LIMIT ?)`
		rest = []any{at, at, from.ID}
	case Scheduled, Published:
		at := fromMicros(from.At).Format(sqlTime)
		branch, rest = selects+`(available_at > ? OR (available_at = ? AND id > ?))`, []any{at, at, from.ID}
		if !f.DueFrom.IsZero() { // nobody is to touch a row before it is due
			branch, rest = branch+" AND available_at >= ?", append(rest, dueText(f.DueFrom))
		}
		if !f.DueBefore.IsZero() { // what is due waits no longer than that for its next attempt or repair
			branch += " AND available_at < GREATEST(?, UTC_TIMESTAMP(6)) + INTERVAL ? MICROSECOND"
			rest = append(rest, dueText(f.DueBefore), (o.store.longestPause() + o.cfg.Grace).Microseconds())
		}
		branch += " ORDER BY available_at, id LIMIT ?)"
	}
	branches := make([]string, len(among))
	args := make([]any, 0, len(among)*(len(rest)+3))
	for i, shard := range among {
		branches[i] = branch
		args = append(append(append(args, string(state), shard), rest...), perShard)
	}
	return strings.Join(branches, " UNION ALL "), args
}

// longestPause is how far ahead of the time of its writing a row can be scheduled that is due already.
func (s *Store) longestPause() time.Duration {
	const attemptsLooked = 1000
	longest := time.Second << maxRepairs
	for n := 1; n < min(s.cfg.MaxAttempts, attemptsLooked); n++ {
		longest = max(longest, s.cfg.Backoff(n))
	}
	return longest
}

// places reads keys, times and ids of rows.
func (o *Operator) places(ctx context.Context, number int, query string, args ...any) ([]place, error) {
	rows, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, p *place) error {
		p.Walk = number
		return rows.Scan(&p.Key, &p.At, &p.ID)
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read along an index: %w", err)
	}
	return rows, nil
}

// stepOf is the step of a walk that was to read n rows.
func stepOf(from place, rows []place, n int) step {
	if len(rows) == 0 {
		return step{at: from, ended: true}
	}
	return step{rows: rows, at: rows[len(rows)-1], ended: len(rows) < n}
}
