package outbox

import (
	"context"
	"database/sql"
	"fmt"
)

// LiveKeys returns the keys of the topic's live messages (scheduled, published or dead) that come after the key after, in the
// order of their bytes, at most limit of them. Messages without a key are left out. It reads an index only, so that an audit
// can walk over all live messages beside its own rows in the same order.
func (s *Store) LiveKeys(ctx context.Context, topic, after string, limit int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: live (topic, live_key)
	keys, err := queryAll(ctx, s.sql, func(rows *sql.Rows, key *string) error { return rows.Scan(key) },
		`SELECT live_key FROM outbox_messages FORCE INDEX (live)
			WHERE topic = ? AND live_key > ? ORDER BY live_key LIMIT ?`, []byte(topic), []byte(after), limit)
	if err != nil {
		return nil, fmt.Errorf("read live keys of topic %s: %w", topic, err)
	}
	return keys, nil
}
