package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// The INSERT of Enqueue, with a delay and with a due time. Columns take over what those before them were given: one reading of the
// clock, and available_at is never before it, see the first migration.
const (
	insertDelay = insertHead + `created_at + INTERVAL ? MICROSECOND` + insertTail
	insertDue   = insertHead + `?` + insertTail

	insertHead = `INSERT INTO outbox_messages
		(shard, topic, message_key, live_key, untracked, content_type, headers, payload, created_at, due_at, available_at) VALUES
		(?, ?, ?, message_key, ?, ?, ?, ?, UTC_TIMESTAMP(6), `
	insertTail = `, GREATEST(due_at, created_at))`
)

// inserts are the same, prepared by the server.
type inserts struct{ delay, due *sql.Stmt }

// mostPrepared is how many bytes of payload and headers are sent to a prepared statement: what parsing costs is nothing beside more,
// and the driver would send it in several packets, past its own check of max_allowed_packet.
const mostPrepared = 32 << 10

// Prepare has the server parse the INSERT of Enqueue once for each connection and not each time, which saves about half of what the server
// does for a message. It is optional, takes effect for transactions of the pool that the store was made with, and is called once the tables are
// there; a second call does nothing. A server that prepares nothing more, now or for a later connection, is no reason to fail: Enqueue
// sends text then, as it does after an error here.
func (s *Store) Prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inserts.Load() != nil {
		return nil
	}
	// Where they differ the server would convert bytes as if they were text.
	var asSent bool
	if err := s.sql.QueryRowContext(ctx, "SELECT @@character_set_client = @@character_set_connection").Scan(&asSent); err != nil {
		return fmt.Errorf("outbox: read the session's character sets: %w", err)
	}
	if !asSent {
		return errors.New("outbox: nothing is prepared, as the session's character_set_client and character_set_connection differ")
	}
	delay, err := s.sql.PrepareContext(ctx, insertDelay)
	if err != nil {
		return fmt.Errorf("outbox: prepare: %w", err)
	}
	due, err := s.sql.PrepareContext(ctx, insertDue)
	if err != nil {
		_ = delay.Close() //nolint:sqlclosecheck // what is prepared stays so
		return fmt.Errorf("outbox: prepare: %w", err)
	}
	s.inserts.Store(&inserts{delay, due})
	return nil
}

// execInsert executes the INSERT with an argument for each of its placeholders; size is how long the large ones are.
func (s *Store) execInsert(ctx context.Context, tx conn, w when, size int, args ...any) (sql.Result, error) {
	text := insertDue
	if w.due.IsZero() {
		text = insertDelay
	}
	prepared := s.inserts.Load()
	own, ok := tx.(*sql.Tx)
	if prepared == nil || !ok || size > mostPrepared {
		return tx.ExecContext(ctx, text, args...)
	}
	stmt := prepared.due
	if w.due.IsZero() {
		stmt = prepared.delay
	}
	there := own.StmtContext(ctx, stmt)
	res, err := there.ExecContext(ctx, args...)
	// Close returns an error exactly when the statement could not be prepared on this connection, also because the transaction belongs to another
	// pool. Nothing was executed then.
	if err != nil && there.Close() != nil || mysqlNumber(err) == erUnknownStmt || mysqlNumber(err) == erNeedReprepare { //nolint:sqlclosecheck // see above
		return tx.ExecContext(ctx, text, args...)
	}
	return res, err
}
