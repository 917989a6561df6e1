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
// If the topic has a live message with this key, m.OnConflict decides, m.ID becomes that one's id, and m.Existed is set.
//
// It returns ErrNotTransaction if tx is not a transaction (sql.ErrTxDone if it has ended), an error that wraps ErrInvalidMessage if the message
// breaks a limit (nothing is written then), and ErrDuplicateKey if the topic has a live message with this key and m does not say otherwise; the
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
		return invalid("", "it is nil")
	}
	if err := m.check(s.cfg.MaxPayload); err != nil {
		return err
	}
	headers, written := m.Headers, func(int64, error) {}
	if s.cfg.Enqueuing != nil {
		headers, written = s.cfg.Enqueuing(ctx, *m)
	}
	err := s.write(ctx, tx, m, headers)
	written(m.ID, err)
	return err
}

// write writes a message that has been checked, with these headers.
func (s *Store) write(ctx context.Context, tx conn, m *Message, headers map[string]string) error {
	row, err := contentOf(m, headers)
	if err != nil {
		return err
	}
	m.Existed = false
	if m.Key == "" || m.OnConflict == "" || m.OnConflict == OnConflictReject {
		err = row.insert(ctx, tx, m)
	} else {
		err = row.put(ctx, tx, m)
	}
	if err != nil && !errors.Is(err, ErrDuplicateKey) {
		return fmt.Errorf("enqueue message: %w", err)
	}
	return err
}

// content is what a message has in columns that replacing it writes.
type content struct {
	contentType, headers, payload []byte
	when                          when
}

func contentOf(m *Message, headers map[string]string) (c content, err error) {
	c = content{contentType: []byte(m.ContentType), payload: m.Payload, when: when{m.DueAt, m.Delay}}
	if m.ContentType == "" {
		c.contentType = []byte(DefaultContentType)
	}
	if m.Payload == nil {
		c.payload = []byte{}
	}
	c.headers, err = encodeHeaders(headers)
	return c, err
}

// when is a due time, or a delay from the statement's time if that is zero.
type when struct {
	due   time.Time
	delay time.Duration
}

// sql is an expression with one argument.
func (w when) sql() (expr string, arg any) {
	if w.due.IsZero() {
		return "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", w.arg()
	}
	return "?", w.arg()
}

func (w when) arg() any {
	if w.due.IsZero() {
		return ceilMicros(w.delay)
	}
	return dueText(w.due)
}

// insert writes m as a new row. Columns take over what those before them were given: one reading of the clock, and available_at is never before
// it, see the first migration.
func (c *content) insert(ctx context.Context, tx conn, m *Message) error {
	due := "?"
	if c.when.due.IsZero() {
		due = "created_at + INTERVAL ? MICROSECOND"
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO outbox_messages
		(shard, topic, message_key, live_key, untracked, content_type, headers, payload, created_at, due_at, available_at) VALUES
		(?, ?, ?, message_key, ?, ?, ?, ?, UTC_TIMESTAMP(6), `+due+`, GREATEST(due_at, created_at))`,
		shardOf(m.Topic, m.Key), []byte(m.Topic), bytesOrNil(m.Key), m.Untracked, c.contentType, c.headers, c.payload, c.when.arg())
	if mysqlNumber(err) == erDupEntry {
		return ErrDuplicateKey
	}
	if err != nil {
		return err
	}
	m.ID, err = res.LastInsertId()
	return err
}

// put writes m where a live message may be in its place. That one is looked for first: an INSERT that meets it leaves a shared lock on
// its key, and then whoever takes the message's row and comes to its key (an effect, a Cancel) is in a deadlock with who goes on
// from the key to the row.
func (c *content) put(ctx context.Context, tx conn, m *Message) error {
	if done, err := c.meet(ctx, tx, m, ""); done || err != nil {
		return err
	}
	err := c.insert(ctx, tx, m)
	if !errors.Is(err, ErrDuplicateKey) {
		return err
	}
	// It came meanwhile, or a snapshot is too old to see it. Its key cannot change any more: the INSERT holds that lock.
	for _, lock := range []string{"", " FOR UPDATE"} {
		if done, err := c.meet(ctx, tx, m, lock); done || err != nil {
			return err
		}
	}
	return err
}

// meet keeps or replaces the live message with m's topic and key; false if there is none, or none any more. The row is written by
// primary key, as in writeLive.
func (c *content) meet(ctx context.Context, tx conn, m *Message, lock string) (bool, error) {
	id, err := liveID(ctx, tx, m.Topic, m.Key, lock)
	if err != nil {
		return false, ignore(err, ErrNoMessage)
	}
	if m.OnConflict == OnConflictKeep {
		// index: primary
		err := tx.QueryRowContext(ctx, `SELECT id FROM outbox_messages WHERE id = ? AND live_key = ? FOR UPDATE`, id, []byte(m.Key)).Scan(&id)
		if err != nil {
			return false, ignore(err, sql.ErrNoRows)
		}
	} else {
		due, arg := c.when.sql()
		n, err := execCount(ctx, tx, `UPDATE outbox_messages SET `+again+`,
				untracked = ?, content_type = ?, headers = ?, payload = ?, due_at = `+due+`, available_at = GREATEST(`+due+`, UTC_TIMESTAMP(6))
			WHERE id = ? AND live_key = ?`, m.Untracked, c.contentType, c.headers, c.payload, arg, arg, id, []byte(m.Key))
		if err != nil || n == 0 {
			return false, err
		}
	}
	m.ID, m.Existed = id, true
	return true, nil
}

// again begins the next generation of a message.
const again = `state = 'scheduled', generation = generation + 1, revision = revision + 1, held = FALSE,
			attempts = 0, begins = 0, repairs = 0, last_error = NULL, failed_at = NULL`

// ignore makes one error none.
func ignore(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
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
	err := s.writeLive(ctx, tx, topic, key, "UPDATE outbox_messages SET "+canceling, s.cfg.Retention.Microseconds())
	if err != nil && !errors.Is(err, ErrNoMessage) {
		return fmt.Errorf("cancel message: %w", err)
	}
	return err
}

// canceling is what withdrawing a message writes. The argument is the retention in microseconds.
const canceling = `state = 'canceled', live_key = NULL, revision = revision + 1, held = FALSE,
			available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, finished_at = UTC_TIMESTAMP(6)`

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
	return s.move(ctx, tx, topic, key, when{due: due})
}

func (s *Store) move(ctx context.Context, tx conn, topic, key string, to when) error {
	due, arg := to.sql()
	err := s.writeLive(ctx, tx, topic, key, `UPDATE outbox_messages SET `+again+`,
			due_at = `+due+`, available_at = GREATEST(`+due+`, UTC_TIMESTAMP(6))`, arg, arg)
	if err != nil && !errors.Is(err, ErrNoMessage) {
		return fmt.Errorf("reschedule message: %w", err)
	}
	return err
}

// writeLive runs an UPDATE on the live row of topic and key. The id is found by plain SELECT and the row written by
// primary key, so that a miss locks nothing and every transaction takes its locks in the order of primary keys. Only when that
// misses (nothing there, or a snapshot that is too old to see it) is the row looked for with a locking read.
func (s *Store) writeLive(ctx context.Context, tx conn, topic, key, update string, args ...any) error {
	if err := checkName(topic, key); err != nil {
		return err
	}
	if key == "" {
		return invalid("key", "key is empty")
	}
	id, err := liveID(ctx, tx, topic, key, "")
	switch {
	case err == nil:
		n, err := execCount(ctx, tx, update+` WHERE id = ? AND live_key = ?`, append(args, id, []byte(key))...)
		if n > 0 || err != nil {
			return err
		}
	case !errors.Is(err, ErrNoMessage):
		return err
	}
	n, err := execCount(ctx, tx, update+` WHERE topic = ? AND live_key = ?`, append(args, []byte(topic), []byte(key))...)
	if err == nil && n == 0 {
		return ErrNoMessage
	}
	return err
}

// liveID returns the id of the live message with this topic and key; ErrNoMessage if there is none.
func liveID(ctx context.Context, tx conn, topic, key, lock string) (id int64, err error) {
	// index: live (topic, live_key)
	err = tx.QueryRowContext(ctx, `SELECT id FROM outbox_messages WHERE topic = ? AND live_key = ?`+lock,
		[]byte(topic), []byte(key)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoMessage
	}
	return id, err
}
