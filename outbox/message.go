package outbox

import (
	"encoding/json"
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
	// control characters.
	Headers map[string]string

	// ID is set by Enqueue. It is on the wire and stays the same for the message's whole life.
	ID int64
}

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

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidMessage}, args...)...)
}

func (m *Message) check(maxPayload int) error {
	switch {
	case !ValidTopic(m.Topic):
		return invalid("topic %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(m.Topic), MaxTopicBytes)
	case m.Key != "" && !ValidKey(m.Key):
		return invalid("key %q is not printable UTF-8 of at most %d bytes", clip(m.Key), MaxKeyBytes)
	case len(m.Payload) > maxPayload:
		return invalid("payload has %d bytes, the limit is %d", len(m.Payload), maxPayload)
	case len(m.ContentType) > MaxContentTypeBytes || strings.IndexFunc(m.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) >= 0:
		return invalid("content type %q is not printable ASCII of at most %d bytes", clip(m.ContentType), MaxContentTypeBytes)
	}
	if !m.DueAt.IsZero() {
		if m.Delay != 0 {
			return invalid("due time and delay are both set")
		}
		return errors.Join(checkDue(m.DueAt), checkHeaders(m.Headers))
	}
	return checkHeaders(m.Headers)
}

// checkDue keeps due times within what DATETIME holds and the wire's int64 microseconds express.
func checkDue(t time.Time) error {
	if y := t.UTC().Year(); y < 1970 || y > 9998 {
		return invalid("due time is in the year %d, not in 1970 to 9998", y)
	}
	return nil
}

func checkHeaders(headers map[string]string) error {
	total := 0
	for name, value := range headers {
		total += len(name) + len(value)
		lower := strings.ToLower(name)
		switch {
		case !isName(name, MaxHeaderNameBytes):
			return invalid("header name %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(name), MaxHeaderNameBytes)
		case lower == "cc" || lower == "bcc" || strings.HasPrefix(lower, "x-"):
			return invalid("header name %q is reserved by the broker", clip(name))
		case !isPrintable(value):
			return invalid("header %q has a value that is not printable UTF-8", name)
		}
	}
	if total > MaxHeaderBytes {
		return invalid("headers have %d bytes, the limit is %d", total, MaxHeaderBytes)
	}
	return nil
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

func encodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	return b, nil
}

func decodeHeaders(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil //nolint:nilnil // no headers is not an error
	}
	var headers map[string]string
	if err := json.Unmarshal(b, &headers); err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
	}
	return headers, nil
}

// bytesOrNil makes an empty key NULL.
func bytesOrNil(s string) any {
	if s == "" {
		return nil
	}
	return []byte(s)
}
