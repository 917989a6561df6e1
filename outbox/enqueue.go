package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Enqueue writes m in the transaction tx and sets m.ID. The message exists if and only if tx commits; one relay's poll
// after that it is on its way.
//
// It returns ErrNotTransaction if tx is not a transaction (sql.ErrTxDone if it has ended), an error that wraps ErrInvalidMessage if the message
// breaks a limit (nothing is written then), and ErrDuplicateKey if the topic has a live message with this key; the
// transaction stays usable after each of these. An enqueue that meets another transaction's row with the same key waits for it
// and may return an error for which IsRetryable holds. After such an error, from this call or any other statement, the server
// has ended the transaction: roll back, as what is enqueued after it would exist whatever becomes of the rest.
func (s *Store) Enqueue(ctx context.Context, tx *gorm.DB, m *Message) error {
	c, err := fromGorm(tx)
	if err != nil {
		return err
	}
	return s.enqueue(ctx, c, m)
}

func (s *Store) enqueue(ctx context.Context, tx conn, m *Message) error {
	if m == nil {
		return invalid("it is nil")
	}
	if err := m.check(s.cfg.MaxPayload); err != nil {
		return err
	}
	headers, err := encodeHeaders(m.Headers)
	if err != nil {
		return err
	}
	contentType := m.ContentType
	if contentType == "" {
		contentType = DefaultContentType
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	// available_at is never before the statement's time, see the first migration.
	const columns = `INSERT INTO outbox_messages
		(shard, topic, message_key, live_key, content_type, headers, payload, due_at, available_at, created_at) VALUES
		(?, ?, ?, ?, ?, ?, ?, `
	args := []any{
		shardOf(m.Topic, m.Key), []byte(m.Topic), bytesOrNil(m.Key), bytesOrNil(m.Key), []byte(contentType), headers, payload,
	}
	var res sql.Result
	if m.DueAt.IsZero() {
		us := ceilMicros(m.Delay)
		res, err = tx.ExecContext(ctx, columns+`UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
			UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6))`, append(args, us, max(us, 0))...)
	} else {
		due := dueText(m.DueAt)
		res, err = tx.ExecContext(ctx, columns+`?, GREATEST(?, UTC_TIMESTAMP(6)), UTC_TIMESTAMP(6))`, append(args, due, due)...)
	}
	if mysqlNumber(err) == erDupEntry {
		return ErrDuplicateKey
	}
	if err != nil {
		return fmt.Errorf("enqueue message: %w", err)
	}
	if m.ID, err = res.LastInsertId(); err != nil {
		return fmt.Errorf("enqueue message: %w", err)
	}
	return nil
}

// ceilMicros rounds up: never early.
func ceilMicros(d time.Duration) int64 {
	us := d.Microseconds()
	if d > 0 && d%time.Microsecond != 0 {
		us++
	}
	return us
}

// Cancel withdraws the live message with this topic and key in the transaction tx. Once tx has committed the message
// takes no effect any more, even if it is already on its way. It acts on dead messages too.
//
// It returns ErrNoMessage if there is none (the message has taken effect, was canceled, or never existed): whoever
// committed first has won.
func (s *Store) Cancel(ctx context.Context, tx *gorm.DB, topic, key string) error {
	c, err := fromGorm(tx)
	if err != nil {
		return err
	}
	return s.cancel(ctx, c, topic, key)
}

func (s *Store) cancel(ctx context.Context, tx conn, topic, key string) error {
	err := s.writeLive(ctx, tx, topic, key, `UPDATE outbox_messages SET
			state = 'canceled', live_key = NULL, revision = revision + 1, held = FALSE,
			available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, finished_at = UTC_TIMESTAMP(6)`,
		s.cfg.Retention.Microseconds())
	if err != nil && !errors.Is(err, ErrNoMessage) {
		return fmt.Errorf("cancel message: %w", err)
	}
	return err
}

// Reschedule moves the live message with this topic and key to another due time, earlier or later, in the transaction tx.
// What is on its way with the old due time takes no effect. Attempts and repairs start at 0 again, without a last error, and a dead
// message is scheduled. It returns ErrNoMessage if there is none, and an error that wraps ErrInvalidMessage for a due time out of range.
func (s *Store) Reschedule(ctx context.Context, tx *gorm.DB, topic, key string, due time.Time) error {
	c, err := fromGorm(tx)
	if err != nil {
		return err
	}
	return s.reschedule(ctx, c, topic, key, due)
}

func (s *Store) reschedule(ctx context.Context, tx conn, topic, key string, due time.Time) error {
	if err := checkDue(due); err != nil {
		return err
	}
	text := dueText(due)
	err := s.writeLive(ctx, tx, topic, key, `UPDATE outbox_messages SET
			state = 'scheduled', generation = generation + 1, revision = revision + 1, held = FALSE,
			attempts = 0, begins = 0, repairs = 0, last_error = NULL, due_at = ?, available_at = GREATEST(?, UTC_TIMESTAMP(6))`,
		text, text)
	if err != nil && !errors.Is(err, ErrNoMessage) {
		return fmt.Errorf("reschedule message: %w", err)
	}
	return err
}

// writeLive runs an UPDATE on the live row of topic and key. The id is found by plain SELECT and the row written by
// primary key, so that a miss locks nothing and every transaction takes its locks in the order of primary keys. Only when that
// misses (nothing there, or a snapshot that is too old to see it) is the row looked for with a locking read.
func (s *Store) writeLive(ctx context.Context, tx conn, topic, key, update string, args ...any) error {
	if !ValidTopic(topic) {
		return invalid("topic %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(topic), MaxTopicBytes)
	}
	if !ValidKey(key) {
		return invalid("key %q is not printable UTF-8 of 1 to %d bytes", clip(key), MaxKeyBytes)
	}
	var id int64
	// index: live (topic, live_key)
	err := tx.QueryRowContext(ctx, `SELECT id FROM outbox_messages WHERE topic = ? AND live_key = ?`,
		[]byte(topic), []byte(key)).Scan(&id)
	switch {
	case err == nil:
		n, err := execCount(ctx, tx, update+` WHERE id = ? AND live_key = ?`, append(args, id, []byte(key))...)
		if n > 0 || err != nil {
			return err
		}
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	n, err := execCount(ctx, tx, update+` WHERE topic = ? AND live_key = ?`, append(args, []byte(topic), []byte(key))...)
	if err == nil && n == 0 {
		return ErrNoMessage
	}
	return err
}
