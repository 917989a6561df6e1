package outbox

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a message, checked by Enqueue before anything is written. Those on names and headers keep a message from
// closing the broker channel that it shares with others: an AMQP 0-9-1 short string holds 255 bytes and the header frame
// must fit into one frame (128 KiB by default).
const (
	MaxTopicBytes       = 64
	MaxKeyBytes         = 191
	MaxContentTypeBytes = 127
	MaxHeaderNameBytes  = 128
	MaxHeaderBytes      = 16 << 10 // all names and values of one message together
	DefaultMaxPayload   = 256 << 10
	maxPayloadLimit     = 8 << 20
)

// DefaultContentType is used for a message that names none.
const DefaultContentType = "application/octet-stream"

var (
	// ErrInvalidMessage is wrapped by every error about the content of a message; its text names the field.
	ErrInvalidMessage = errors.New("outbox: invalid message")
	// ErrPayloadTooLarge says that a payload is above StoreConfig.MaxPayload. It wraps ErrInvalidMessage.
	ErrPayloadTooLarge = fmt.Errorf("%w: payload too large", ErrInvalidMessage)
	// ErrDuplicateKey says that a live message with this topic and key exists already.
	ErrDuplicateKey = errors.New("outbox: a live message with this topic and key exists")
	// ErrNoMessage says that no live message with this topic and key (or no message with this id) exists.
	ErrNoMessage = errors.New("outbox: no such message")
)

// Message is what Enqueue writes.
type Message struct {
	// Topic names the effect; it is the routing key. Required: [A-Za-z0-9._-], at most MaxTopicBytes.
	Topic string
	// Key is the business key by which Cancel and Reschedule find the message: printable UTF-8, at most MaxKeyBytes.
	// Unique among the topic's live messages. Empty: the message has no key and cannot be withdrawn by key.
	Key string
	// DueAt is when the message fires, rounded up to the microsecond. Zero: the database's now plus Delay.
	DueAt time.Time
	// Delay counts from the database's clock at the insert; only used with a zero DueAt. May be negative: due at once.
	Delay time.Duration
	// Payload is opaque, at most StoreConfig.MaxPayload bytes.
	Payload []byte
	// ContentType is printable ASCII; default DefaultContentType.
	ContentType string
	// Headers travel with the message. Names: [A-Za-z0-9._-], not CC, BCC or x-*; values: valid UTF-8 without
	// control characters. Some names have a meaning of their own, and rules: traceparent and tracestate are those of W3C Trace
	// Context, and ce-* are the attributes of a CloudEvent (1.0), of which ce-specversion, ce-id, ce-source and ce-type must
	// be there if any is.
	Headers map[string]string
	// OnConflict says what happens if the topic has a live message with this key. Default OnConflictReject.
	OnConflict OnConflict
	// Untracked ends the message at the broker's confirm instead of its effect: it is done then, its key is free, it cannot be
	// withdrawn any more, and what the broker loses afterwards stays lost. It is for consumers that do not call Handle:
	// what Handle is given of it is a duplicate (or takes effect, if the confirm was not yet written down).
	Untracked bool

	// ID is set by Enqueue. It is on the wire and stays the same for the message's whole life.
	ID int64
	// Existed is set by Enqueue: a live message with this topic and key was there, and was kept or replaced. ID is that one's.
	Existed bool
}

// OnConflict says what Enqueue does if the topic has a live message with the same key. A dead message is live: it has its key
// until an operator, or a call, has dealt with it.
type OnConflict string

// What Enqueue can do with a live message of the same topic and key.
const (
	// OnConflictReject: Enqueue returns ErrDuplicateKey. So does the zero value.
	OnConflictReject OnConflict = "reject"
	// OnConflictKeep: it stays as it is, and takes no effect before the transaction of Enqueue has ended, so that its effect
	// sees what that has written. A message that is dead stays dead.
	OnConflictKeep OnConflict = "keep"
	// OnConflictReplace: due time, payload, content type, headers and Untracked become those of the new one. What is on its
	// way takes no effect any more; a dead message is scheduled. As after Reschedule, attempts and repairs start at 0 again.
	OnConflictReplace OnConflict = "replace"
)

// FieldError says which field of a message breaks a limit, and which. It wraps ErrInvalidMessage.
type FieldError struct {
	Field  string // topic, key, payload, content_type, headers, due_at, delay, on_conflict; empty: the message as a whole
	Detail string

	err error
}

func (e *FieldError) Error() string { return ErrInvalidMessage.Error() + ": " + e.Detail }

// Unwrap returns the sentinel that says what is wrong.
func (e *FieldError) Unwrap() error { return e.err }

// ValidTopic reports whether s can be a topic.
func ValidTopic(s string) bool { return isName(s, MaxTopicBytes) }

// ValidKey reports whether s can be the key of a message.
func ValidKey(s string) bool {
	return s != "" && len(s) <= MaxKeyBytes && isPrintable(s)
}

func isName(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return false
		}
	}
	return true
}

func isPrintable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Detail: fmt.Sprintf(format, args...), err: ErrInvalidMessage}
}

func (m *Message) check(maxPayload int) error {
	if err := checkName(m.Topic, m.Key); err != nil {
		return err
	}
	switch {
	case len(m.Payload) > maxPayload:
		return &FieldError{
			Field: "payload", Detail: fmt.Sprintf("payload has %d bytes, the limit is %d", len(m.Payload), maxPayload), err: ErrPayloadTooLarge,
		}
	case len(m.ContentType) > MaxContentTypeBytes || !isASCII(m.ContentType):
		return invalid("content_type", "content type %q is not printable ASCII of at most %d bytes", clip(m.ContentType), MaxContentTypeBytes)
	}
	switch m.OnConflict {
	case "", OnConflictReject, OnConflictKeep, OnConflictReplace:
	default:
		return invalid("on_conflict", "on conflict is %q, not reject, keep or replace", clip(string(m.OnConflict)))
	}
	if !m.DueAt.IsZero() {
		if m.Delay != 0 {
			return invalid("delay", "due time and delay are both set")
		}
		return errors.Join(checkDue(m.DueAt), checkHeaders(m.Headers))
	}
	return checkHeaders(m.Headers)
}

// checkName takes a topic with a key or without one.
func checkName(topic, key string) error {
	switch {
	case !ValidTopic(topic):
		return invalid("topic", "topic %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(topic), MaxTopicBytes)
	case key != "" && !ValidKey(key):
		return invalid("key", "key %q is not printable UTF-8 of at most %d bytes", clip(key), MaxKeyBytes)
	}
	return nil
}

// checkDue keeps due times within what DATETIME holds and the wire's int64 microseconds express.
func checkDue(t time.Time) error {
	if y := t.UTC().Add(time.Microsecond - 1).Year(); t.UTC().Year() < 1970 || y > 9998 { // it is rounded up
		return invalid("due_at", "due time is in the year %d, not in 1970 to 9998", y)
	}
	return nil
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// shards is how many parts the ledger has; a part is what relays lease. It fits the rows that the migrations make.
const shards = 16

func shardOf(topic, key string) int {
	if key == "" {
		return rand.IntN(shards) //nolint:gosec // spreads load, guards nothing
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % shards)
}

// bytesOrNil makes an empty key NULL.
func bytesOrNil(s string) any {
	if s == "" {
		return nil
	}
	return []byte(s)
}
