package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Live is a live message as an audit compares it with the application's own rows.
type Live struct {
	Key   string
	DueAt time.Time
}

// Live returns the topic's live messages (scheduled, published or dead) whose keys come after the key after, in the order of the
// bytes of their keys, at most limit of them. Messages without a key are left out. It reads along an index, so that an audit
// can walk over all live messages beside its own rows in the same order.
func (s *Store) Live(ctx context.Context, topic, after string, limit int) ([]Live, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: live (topic, live_key)
	page, err := queryAll(ctx, s.sql, func(rows *sql.Rows, m *Live) error {
		var due int64
		err := rows.Scan(&m.Key, &due)
		m.DueAt = fromMicros(due)
		return err
	}, `SELECT live_key, `+micros1970("due_at")+` FROM outbox_messages FORCE INDEX (live)
			WHERE topic = ? AND live_key > ? ORDER BY live_key LIMIT ?`, []byte(topic), []byte(after), limit)
	if err != nil {
		return nil, fmt.Errorf("read live messages of topic %s: %w", topic, err)
	}
	return page, nil
}
