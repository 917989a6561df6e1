package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// AuditEntry is an action of an operator on a message.
type AuditEntry struct {
	ID        int64
	At        time.Time
	Actor     Actor
	Action    Action
	MessageID int64
	Topic     string
	Key       string // empty: none
	Detail    string // what the message was before, and what was asked for
}

// AuditFilter picks audit entries, the newest first.
type AuditFilter struct {
	MessageID int64  // 0: of any message
	Actor     string // empty: anybody's
	Before    int64  // only entries with lower ids; 0: from the newest
	Limit     int
}

// auditRetention is how long audit entries are kept: for longer than a year, since who looks at them compares with the last one. They hold
// names of people, so they are not kept for ever.
const auditRetention = 400 * 24 * time.Hour

// Audit reads what operators have done. Entries outlive their messages, and are purged after 400 days.
func (o *Operator) Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: by_message, by_actor or primary, each in the order of the id
	where, args := "id < ?", []any{beforeOrAll(f.Before)}
	if f.MessageID != 0 {
		where, args = where+" AND message_id = ?", append(args, f.MessageID)
	}
	if f.Actor != "" {
		where, args = where+" AND actor = ?", append(args, f.Actor)
	}
	entries, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, e *AuditEntry) error {
		var at int64
		err := rows.Scan(&e.ID, &at, &e.Actor.Name, &e.Actor.Via, &e.Action, &e.MessageID, &e.Topic, &e.Key, &e.Detail)
		e.At = fromMicros(at)
		return err
	}, `SELECT id, `+micros1970("acted_at")+`, actor, via, action, message_id, topic, COALESCE(message_key, ''), detail
		FROM outbox_audit WHERE `+where+` ORDER BY id DESC LIMIT ?`, append(args, f.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("read the audit table: %w", err)
	}
	return entries, nil
}

// note writes an audit entry for each of rows, which are as they were before.
func note(ctx context.Context, tx *sql.Tx, by Actor, c Command, rows []version) error {
	values := make([]string, len(rows))
	args := make([]any, 0, 7*len(rows))
	for i, r := range rows {
		values[i] = "(UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?, ?)"
		args = append(args, by.Name, []byte(by.Via), []byte(c.Action), r.ID, []byte(r.Topic), bytesOrNil(r.Key), cleanText(detail(c, &r.Record)))
	}
	_, err := execCount(ctx, tx, `INSERT INTO outbox_audit
			(acted_at, actor, via, action, message_id, topic, message_key, detail) VALUES `+strings.Join(values, ", "), args...)
	return wrap("write audit entries", err)
}

// detail says what a message was before a command, and what was asked for.
func detail(c Command, before *Record) string {
	text := fmt.Sprintf("was %s, due %s", before.State, inText(before.DueAt))
	switch {
	case c.Action == ActReschedule && c.DueAt.IsZero():
		text = fmt.Sprintf("due in %v; %s", c.Delay, text)
	case c.Action == ActReschedule:
		text = fmt.Sprintf("due %s; %s", inText(c.DueAt), text)
	}
	if before.Attempts > 0 {
		text += fmt.Sprintf(", after %d attempts", before.Attempts)
	}
	if before.LastError != "" {
		text += ": " + before.LastError
	}
	return text
}

// inText is a time as people read it.
func inText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
