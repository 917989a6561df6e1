package outbox

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Filter picks messages. The zero value picks all.
type Filter struct {
	Topic     string
	Key       string
	KeyPrefix string // of the key, in bytes
	State     State
	DueFrom   time.Time // due then or later
	DueBefore time.Time
	Error     string // a part of the last error, in whatever case

	among     []State   // the states that are asked for; nil: all
	untouched time.Time // there by then, and no operator has acted on it since; zero: whatever
}

// IsZero says whether the filter picks all messages.
func (f *Filter) IsZero() bool {
	return f.Topic == "" && f.Key == "" && f.KeyPrefix == "" && f.State == "" && f.DueFrom.IsZero() && f.DueBefore.IsZero() && f.Error == ""
}

func (f *Filter) check() error {
	const longestError = 200
	var bad []error
	refuse := func(is bool, field, format string, args ...any) {
		if is {
			bad = append(bad, invalid(field, format, args...))
		}
	}
	refuse(f.Topic != "" && !ValidTopic(f.Topic), "topic", "topic %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(f.Topic), MaxTopicBytes)
	refuse(f.Key != "" && !ValidKey(f.Key), "key", "key %q is not printable UTF-8 of at most %d bytes", clip(f.Key), MaxKeyBytes)
	refuse(f.KeyPrefix != "" && !ValidKey(f.KeyPrefix), "key_prefix", "key prefix %q is not printable UTF-8 of at most %d bytes", clip(f.KeyPrefix), MaxKeyBytes)
	refuse(f.Key != "" && f.KeyPrefix != "", "key_prefix", "key and key prefix are both set")
	refuse(f.State != "" && !slices.Contains(everyState(), f.State), "state", "state %q is not %s", clip(string(f.State)), oneOf(everyState()))
	refuse(!f.DueFrom.IsZero() && checkDue(f.DueFrom) != nil, "due_from", "it is not in the years 1970 to 9998")
	refuse(!f.DueBefore.IsZero() && checkDue(f.DueBefore) != nil, "due_to", "it is not in the years 1970 to 9998")
	refuse(len(f.Error) > longestError, "error", "it has more than %d bytes", longestError)
	if len(bad) == 0 {
		return nil
	}
	return bad[0]
}

// everyState is in the order in which an operator wants to see messages: first what waits for one, then what is to come.
func everyState() []State { return []State{Dead, Scheduled, Published, Done, Canceled} }

// states are those that the filter asks for.
func (f *Filter) states() (asked []State) {
	for _, s := range everyState() {
		if (f.State == "" || f.State == s) && (f.among == nil || slices.Contains(f.among, s)) {
			asked = append(asked, s)
		}
	}
	return asked
}

// where is the filter as SQL, for rows that a walk has found.
func (f *Filter) where() (where string, args []any) {
	add := func(is bool, condition string, arg any) {
		if is {
			where, args = where+" AND "+condition, append(args, arg)
		}
	}
	add(f.Topic != "", "topic = ?", []byte(f.Topic))
	add(f.Key != "", "message_key = ?", []byte(f.Key))
	add(f.KeyPrefix != "", "LEFT(message_key, "+fmt.Sprint(len(f.KeyPrefix))+") = ?", []byte(f.KeyPrefix))
	add(!f.DueFrom.IsZero(), "due_at >= ?", dueText(f.DueFrom))
	add(!f.DueBefore.IsZero(), "due_at < ?", dueText(f.DueBefore))
	add(f.Error != "", "LOCATE(LOWER(?), LOWER(last_error)) > 0", f.Error)
	if !f.untouched.IsZero() {
		// index: outbox_audit by_message
		where += ` AND created_at <= ? AND NOT EXISTS (
			SELECT 1 FROM outbox_audit AS acts WHERE acts.message_id = outbox_messages.id AND acts.acted_at >= ?)`
		args = append(args, dueText(f.untouched), dueText(f.untouched))
	}
	if states := f.states(); len(states) < len(everyState()) {
		where += " AND state IN (" + marks(len(states)) + ")"
		for _, s := range states {
			args = append(args, string(s))
		}
	}
	return where, args
}

// MessagePage is a part of a list.
type MessagePage struct {
	Messages []Record
	Next     string // where the list goes on; empty: this was its end
}

const (
	// The most rows that one call looks at. Where no index serves a filter, it may find few of them, or none.
	listRows = 5000
	// What looking for the next topic or state counts for, in rows.
	walkRows = 50
	// Rows that are read by one statement. MariaDB makes a temporary table of an IN list of a thousand.
	fetchRows = 250
)

// MaxPage is the most messages on a page.
const MaxPage = 500

// List returns the messages that f picks, at most limit of them, from where the list goes on (MessagePage.Next) or its beginning. It is
// paged by position, so that messages that come or go do not move the others: as long as none changes its state or its time, each is
// on one page.
//
// A call looks at 5,000 rows at most, whatever there are. Filters by state (with times, or without) and by the key of live messages find
// their rows along an index, and so does a topic alone. What is left of a filter is compared row by row: then a page may be
// short, or empty, although the list goes on.
//
// The order is that of the index: by state (dead, scheduled, published, done, canceled), and in it what somebody must touch first
// comes first, but what has ended or died last; by topic and key where one of these is asked for alone; and the newest first
// without a filter. It returns an error that wraps ErrInvalidMessage for a filter, limit or position that is none.
func (o *Operator) List(ctx context.Context, f Filter, after string, limit int) (MessagePage, error) {
	if err := f.check(); err != nil {
		return MessagePage{}, err
	}
	if limit < 1 || limit > MaxPage {
		return MessagePage{}, invalid("limit", "limit %d is not in 1 to %d", limit, MaxPage)
	}
	rows, next, err := o.list(ctx, &f, after, limit)
	page := MessagePage{Messages: make([]Record, len(rows)), Next: next}
	for i, r := range rows {
		page.Messages[i] = r.Record
	}
	return page, err
}

// list is List of a filter and a limit that have been checked.
func (o *Operator) list(ctx context.Context, f *Filter, after string, limit int) (rows []version, next string, err error) {
	walks := o.walks(f)
	at, err := parsePlace(after, len(walks))
	if err != nil {
		return nil, "", err
	}
	l := listing{store: o.store, limit: limit, at: at, budget: listRows}
	l.where, l.args = f.where()
	step := limit
	for l.at.Walk < len(walks) && l.budget > 0 && len(l.page) < limit {
		if err := l.goOn(ctx, walks[l.at.Walk], min(step, l.budget)); err != nil {
			return nil, "", fmt.Errorf("list messages: %w", err)
		}
		step *= 4
	}
	if l.at.Walk < len(walks) {
		next = l.at.String()
	}
	return l.page, next, nil
}

// listing is a page that is being filled.
type listing struct {
	store  *Store
	where  string
	args   []any
	limit  int
	page   []version
	at     place // where to go on
	budget int   // rows that may still be looked at
}

// goOn reads on by about n rows, and keeps those that the filter picks.
func (l *listing) goOn(ctx context.Context, w walk, n int) error {
	s, err := l.step(ctx, w, n)
	if err != nil {
		return err
	}
	l.budget -= walkRows + len(s.rows)
	for rows := range slices.Chunk(s.rows, fetchRows) {
		found, err := l.fetch(ctx, rows)
		if err != nil {
			return err
		}
		for i, p := range rows {
			l.at = p
			if r, ok := found[p.ID]; ok {
				l.page = append(l.page, r)
			}
			if len(l.page) == l.limit && (i+1 < len(rows) || p != s.rows[len(s.rows)-1]) {
				return nil
			}
		}
	}
	if l.at = s.at; s.ended {
		l.at = place{Walk: s.at.Walk + 1}
	}
	return nil
}

func (l *listing) step(ctx context.Context, w walk, n int) (step, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return w(ctx, l.at, n)
}

// fetch reads those of rows that the filter picks, by id.
func (l *listing) fetch(ctx context.Context, rows []place) (map[int64]version, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	args := make([]any, 0, len(rows)+len(l.args))
	for _, p := range rows {
		args = append(args, p.ID)
	}
	// index: primary
	records, err := queryAll(ctx, l.store.sql, func(rows *sql.Rows, v *version) error { return readRecord(rows, &v.Record, &v.revision) },
		`SELECT `+recordColumns()+`, revision FROM outbox_messages FORCE INDEX (PRIMARY) WHERE id IN (`+marks(len(rows))+`)`+l.where, append(args, l.args...)...)
	found := make(map[int64]version, len(records))
	for _, r := range records {
		found[r.ID] = r
	}
	return found, err
}

// place is where a list stands: at a row, of the walk with this number. The zero place is before the first row of the first walk.
type place struct {
	Walk  int    `json:"w"`
	At    int64  `json:"a,omitempty"` // available_at, in microseconds
	ID    int64  `json:"i,omitempty"`
	Topic string `json:"t,omitempty"`
	Key   string `json:"k,omitempty"`
}

// String is the place as it goes through a client.
func (p place) String() string {
	text, _ := json.Marshal(p) //nolint:errchkjson // numbers and text always encode
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePlace(text string, walks int) (p place, err error) {
	if text == "" {
		return place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err == nil && (p.Walk < 0 || p.Walk >= walks || p.ID < 0 || p.At < 0 || p.At > maxMicros) {
		err = errors.New("out of range")
	}
	if err != nil {
		return place{}, invalid("after", "%q is not where a list of this filter goes on", clip(text))
	}
	return p, nil
}
