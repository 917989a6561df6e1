package rabbitmq

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// Names of headers on the wire. Those that begin with x- belong to the broker.
const (
	headerID         = "duebox-id"
	headerStore      = "duebox-store"
	headerKey        = "duebox-key" // absent: the message has no key
	headerGeneration = "duebox-generation"
	headerAttempt    = "duebox-attempt"
	headerDue        = "duebox-due" // microseconds since 1970 UTC
	userPrefix       = "user-"
	eventPrefix      = "cloudEvents:" // attributes, as in the AMQP protocol binding of CloudEvents
	headerDelay      = "x-delay"      // milliseconds; always int64, as other types wrap or fire at once
	headerDeliveries = "x-delivery-count"
)

// maxShortString is what AMQP 0-9-1 allows for names, routing keys and properties. The client library closes the connection
// when it meets a longer one.
const maxShortString = 255

const maxStoreBytes = 64

// encoder turns publications into what amqp091 sends. It reuses one header table, which amqp091 has written out when
// its publish returns. It is not safe for concurrent use.
type encoder struct {
	frameMax int // of the connection, in bytes; 0: no limit
	headers  amqp.Table
}

// encode returns p with a delay in milliseconds, none if delay <= 0. The result is good until the next call. An error
// is outbox.ErrUnpublishable and names what would end the channel, or what decode would refuse.
func (e *encoder) encode(p *outbox.Publication, delay int64) (amqp.Publishing, error) {
	if err := checkIdentity(p.Store, p.ID, p.Topic, p.Key, p.Generation, int64(p.Attempt)); err != nil {
		return amqp.Publishing{}, fmt.Errorf("%w: %w", outbox.ErrUnpublishable, err)
	}
	if e.headers == nil {
		e.headers = make(amqp.Table, 8+len(p.Headers))
	}
	clear(e.headers)
	e.headers[headerID] = p.ID
	e.headers[headerStore] = p.Store
	if p.Key != "" {
		e.headers[headerKey] = p.Key
	}
	e.headers[headerGeneration] = p.Generation
	e.headers[headerAttempt] = int64(p.Attempt)
	e.headers[headerDue] = p.DueAt.UnixMicro()
	if delay > 0 {
		e.headers[headerDelay] = delay
	}
	for name, value := range p.Headers {
		wire := wireName(name)
		if len(wire) > maxShortString {
			return amqp.Publishing{}, fmt.Errorf("%w: header name %q is too long", outbox.ErrUnpublishable, name[:80]+"...")
		}
		e.headers[wire] = value
	}
	if len(p.ContentType) > maxShortString {
		return amqp.Publishing{}, fmt.Errorf("%w: content type has %d bytes, the limit is %d", outbox.ErrUnpublishable, len(p.ContentType), maxShortString)
	}
	m := amqp.Publishing{
		Headers:      e.headers,
		ContentType:  p.ContentType,
		DeliveryMode: amqp.Persistent,
		MessageId:    p.Store + "-" + strconv.FormatInt(p.ID, 10),
		Body:         p.Payload,
	}
	if size := headerFrameSize(&m); e.frameMax > 0 && size > e.frameMax {
		return amqp.Publishing{}, fmt.Errorf("%w: headers need a frame of %d bytes, the broker's limit is %d", outbox.ErrUnpublishable, size, e.frameMax)
	}
	return m, nil
}

// wireName is how a message's header is called on the wire: what others read there by its name has that name.
func wireName(name string) string {
	switch {
	case name == outbox.HeaderTraceparent || name == outbox.HeaderTracestate:
		return name
	case strings.HasPrefix(name, outbox.HeaderCloudEvent):
		return eventPrefix + name[len(outbox.HeaderCloudEvent):]
	}
	return userPrefix + name
}

// messageName is the message's header that wireName has named so; false for a name that is not of its making.
func messageName(wire string) (string, bool) {
	switch {
	case strings.HasPrefix(wire, userPrefix):
		return wire[len(userPrefix):], true
	case strings.HasPrefix(wire, eventPrefix):
		return outbox.HeaderCloudEvent + wire[len(eventPrefix):], true
	case wire == outbox.HeaderTraceparent || wire == outbox.HeaderTracestate:
		return wire, true
	}
	return "", false
}

// headerFrameSize is the size of the content header frame of AMQP 0-9-1 (section 4.2.6), for the properties that encode sets.
func headerFrameSize(m *amqp.Publishing) int {
	const (
		frame  = 8  // type, channel, size, end
		fixed  = 14 // class, weight, body size, flags
		table  = 4
		mode   = 1
		number = 8
	)
	size := frame + fixed + 1 + len(m.ContentType) + table + mode + 1 + len(m.MessageId)
	for name, value := range m.Headers {
		size += 1 + len(name) + 1
		if s, ok := value.(string); ok {
			size += 4 + len(s)
		} else {
			size += number
		}
	}
	return size
}

// delayOf is how many milliseconds lie between now and at, rounded up: a message is never early.
func delayOf(at, now time.Time) int64 {
	d := at.Sub(now)
	ms := d.Milliseconds()
	if d > 0 && d%time.Millisecond != 0 {
		ms++
	}
	return ms
}

// checkIdentity holds for everything that is put on the wire and everything that is taken from it.
func checkIdentity(store string, id int64, topic, key string, generation, attempt int64) error {
	switch {
	case store == "" || len(store) > maxStoreBytes:
		return fmt.Errorf("%s has %d bytes, not 1 to %d", headerStore, len(store), maxStoreBytes)
	case id <= 0:
		return fmt.Errorf("%s is %d, not above zero", headerID, id)
	case !outbox.ValidTopic(topic):
		return fmt.Errorf("routing key %.80q is not a topic", topic)
	case key != "" && !outbox.ValidKey(key):
		return fmt.Errorf("%s %.80q is not a key", headerKey, key)
	case generation < 0:
		return fmt.Errorf("%s is %d, below zero", headerGeneration, generation)
	case attempt < 0 || attempt > math.MaxInt32:
		return fmt.Errorf("%s is %d, not in 0 to %d", headerAttempt, attempt, math.MaxInt32)
	}
	return nil
}

// decode returns the delivery that encode made, or an error that says what is malformed. Headers that are neither ours nor
// the user's are left out: a delivery still carries x-delay, and x-death after a dead-lettering.
func decode(d *amqp.Delivery) (outbox.Delivery, error) {
	h := reader{table: d.Headers}
	out := outbox.Delivery{
		Store:       h.text(headerStore),
		ID:          h.number(headerID),
		Topic:       d.RoutingKey,
		Generation:  h.number(headerGeneration),
		DueAt:       time.UnixMicro(h.number(headerDue)).UTC(),
		Payload:     d.Body,
		ContentType: d.ContentType,
	}
	attempt := h.number(headerAttempt)
	if _, ok := d.Headers[headerKey]; ok {
		if out.Key = h.text(headerKey); out.Key == "" {
			h.fail("%s is empty", headerKey)
		}
	}
	for name, value := range d.Headers {
		if user, ok := messageName(name); ok {
			text, ok := value.(string)
			if !ok {
				h.fail("header %.80q is %T, not a string", name, value)
				break
			}
			if out.Headers == nil {
				out.Headers = make(map[string]string)
			}
			out.Headers[user] = text
		}
	}
	if h.err == nil {
		h.err = checkIdentity(out.Store, out.ID, out.Topic, out.Key, out.Generation, attempt)
	}
	if h.err != nil {
		return outbox.Delivery{}, h.err
	}
	out.Attempt = int(attempt)
	if n, ok := integer(d.Headers[headerDeliveries]); ok {
		out.Redeliveries = int(min(max(n, 0), math.MaxInt32))
	}
	if d.Redelivered { // all that a classic queue says
		out.Redeliveries = max(out.Redeliveries, 1)
	}
	return out, nil
}

// reader takes headers out of a table and remembers the first that is missing or of another type.
type reader struct {
	table amqp.Table
	err   error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) text(name string) string {
	value, ok := r.table[name]
	text, isText := value.(string)
	switch {
	case !ok:
		r.fail("header %s is missing", name)
	case !isText:
		r.fail("header %s is %T, not a string", name, value)
	}
	return text
}

func (r *reader) number(name string) int64 {
	value, ok := r.table[name]
	n, isNumber := integer(value)
	switch {
	case !ok:
		r.fail("header %s is missing", name)
	case !isNumber:
		r.fail("header %s is %T, not an integer", name, value)
	}
	return n
}

// integer takes every integer type that AMQP tables have.
func integer(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case int32:
		return int64(n), true
	case int16:
		return int64(n), true
	case int8:
		return int64(n), true
	case int:
		return int64(n), true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	}
	return 0, false
}
