package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// putMessage writes a message, over a live one of the same topic and key unless the request asks that there be none.
func (s *Server) putMessage(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	topic, key, err := ownMessage(c)
	if err != nil {
		return reply{}, err
	}
	m := &outbox.Message{Topic: topic, Key: key}
	if m.OnConflict, err = onConflict(c.Request.Header); err != nil {
		return reply{}, err
	}
	in, err := readLarge(c, maxMessageBody, "payload")
	if err != nil {
		return reply{}, err
	}
	m.Payload, m.ContentType = in.payload()
	m.Headers = in.texts("headers")
	m.DueAt, m.Delay, _ = in.due()
	m.Untracked = !in.flagOr("tracked", true)
	m.Headers = passOn(c.Request.Header, m.Headers, in.faults)
	if err := in.end(); err != nil {
		return reply{}, err
	}
	r, err := s.messages.Enqueue(c.Request.Context(), m)
	if err != nil {
		return reply{}, messageError(err)
	}
	c.Set(aboutMessage, messageBody(r).ID)
	if m.Existed {
		return ok(messageBody(r)), nil
	}
	return created("/v1/messages/"+topic+"/"+url.PathEscape(key), messageBody(r)), nil
}

// getMessage shows the live message, or with an id the one that has it, also when it has ended.
func (s *Server) getMessage(c *gin.Context) (reply, error) {
	q, err := query(c, "id")
	if err != nil {
		return reply{}, err
	}
	topic, key, err := pathMessage(c)
	if err != nil {
		return reply{}, err
	}
	if q["id"] == "" {
		r, err := s.messages.Lookup(c.Request.Context(), topic, key)
		return ok(messageBody(r)), messageError(err)
	}
	id, err := number("id", q["id"], "must be a message's id")
	if err != nil {
		return reply{}, err
	}
	r, err := s.messages.LookupID(c.Request.Context(), id)
	if err == nil && (r.Topic != topic || r.Key != key) {
		err = outbox.ErrNoMessage
	}
	return ok(messageBody(r)), messageError(err)
}

// moveMessage gives a live message another due time.
func (s *Server) moveMessage(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	topic, key, err := ownMessage(c)
	if err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	due, delay, given := in.due()
	in.faults.Check(given, "due_at", "is required, or delay")
	if err := in.end(); err != nil {
		return reply{}, err
	}
	r, err := s.messages.Reschedule(c.Request.Context(), topic, key, due, delay)
	return ok(messageBody(r)), messageError(err)
}

func (s *Server) withdrawMessage(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	topic, key, err := ownMessage(c)
	if err != nil {
		return reply{}, err
	}
	if err := readNothing(c); err != nil {
		return reply{}, err
	}
	return nothing(), messageError(s.messages.Cancel(c.Request.Context(), topic, key))
}

// pathMessage is the topic and key in a path.
func pathMessage(c *gin.Context) (topic, key string, err error) {
	var bad model.Faults
	topic, err = url.PathUnescape(c.Param("topic"))
	bad.Check(err == nil && outbox.ValidTopic(topic) && !isDots(topic), "topic", model.IDRule+", and not . or ..")
	key, err = url.PathUnescape(c.Param("key"))
	bad.Check(err == nil && outbox.ValidKey(key) && !isDots(key), "key", "must be printable UTF-8 of 1 to 191 bytes, percent-encoded, and not . or ..")
	return topic, key, bad.Err()
}

// isDots tells a segment that clients resolve instead of sending it, percent-encoded or not (WHATWG URL).
func isDots(segment string) bool { return segment == "." || segment == ".." }

// ownMessage is pathMessage for a request that writes: the order service's messages are not for others to disarm.
func ownMessage(c *gin.Context) (topic, key string, err error) {
	topic, key, err = pathMessage(c)
	if err == nil && model.IsOrderTopic(topic) {
		err = errOrderTopic
	}
	return topic, key, err
}

// onConflict is what the precondition of a PUT asks for.
func onConflict(h http.Header) (outbox.OnConflict, error) {
	const header = "If-None-Match"
	switch values := h.Values(header); {
	case len(values) == 0:
		return outbox.OnConflictReplace, nil
	case len(values) > 1 || values[0] != "*":
		return "", model.Invalid(header, "must be *, or not be there")
	}
	return outbox.OnConflictReject, nil
}

// payload is the message's payload and its content type: a JSON value as it is written, bytes as base64, or nothing.
func (o *object) payload() (payload []byte, contentType string) {
	value, isValue := o.optional("payload")
	encoded, isBytes := o.optionalText("payload_base64")
	contentType, _ = o.optionalText("content_type")
	o.faults.Check(!isValue || !isBytes, "payload_base64", "cannot be given beside payload")
	if isValue {
		raw, _ := value.(json.RawMessage)
		if contentType == "" {
			contentType = "application/json"
		}
		return raw, contentType
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(encoded)
	o.faults.Check(err == nil, "payload_base64", "must be base64 with padding, of the standard alphabet")
	return payload, contentType
}

// due is when a message shall fire: a time, or a delay from now.
func (o *object) due() (due time.Time, delay time.Duration, given bool) {
	at, isTime := o.optional("due_at")
	due = o.parseInstant("due_at", at, isTime)
	delay, isDelay := o.delay("delay")
	// The zero time would be taken for none.
	o.faults.Check(!isTime || !due.IsZero() || at == nil, "due_at", "must not be the year 1")
	o.faults.Check(!isTime || !isDelay, "delay", "cannot be given beside due_at")
	return due, delay, isTime || isDelay
}

// passOn adds the headers of the request that travel with the message: those of a trace, and the attributes of a CloudEvent in binary
// content mode. What the body says of the same name stays. A traceparent that is none is ignored, and tracestate with it, as W3C Trace
// Context asks: it may be a proxy's.
func passOn(h http.Header, headers map[string]string, bad *model.Faults) map[string]string {
	traced := len(h.Values(outbox.HeaderTraceparent)) == 1 && outbox.ValidTraceparent(h.Get(outbox.HeaderTraceparent))
	for name, values := range h {
		name = strings.ToLower(name)
		value := values[0]
		switch {
		case !traced && (name == outbox.HeaderTraceparent || name == outbox.HeaderTracestate):
			continue
		case name == outbox.HeaderTracestate:
			value = strings.Join(values, ",")
		case name != outbox.HeaderTraceparent && !strings.HasPrefix(name, outbox.HeaderCloudEvent):
			continue
		case len(values) > 1:
			bad.Add(shown(name), "must be given once")
			continue
		}
		if strings.HasPrefix(name, outbox.HeaderCloudEvent) {
			decoded, ok := attribute(value)
			bad.Check(ok, shown(name), "must be percent-encoded, as the HTTP binding of CloudEvents says")
			value = decoded
		}
		if headers == nil {
			headers = map[string]string{}
		}
		if _, given := headers[name]; !given {
			headers[name] = value
		}
	}
	return headers
}

// attribute reads a CloudEvents attribute from a header (HTTP protocol binding, 3.1.3.2): quotes around it are taken off, then
// percent-encoding.
func attribute(value string) (string, bool) {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		var inner strings.Builder
		for quoted := value[1 : len(value)-1]; quoted != ""; quoted = quoted[1:] {
			if quoted[0] == '\\' && len(quoted) > 1 {
				quoted = quoted[1:]
			}
			inner.WriteByte(quoted[0])
		}
		value = inner.String()
	}
	decoded, err := url.PathUnescape(value)
	return decoded, err == nil
}

// messageError is err in the API's own words; nil stays nil.
func messageError(err error) error {
	switch {
	case err == nil || errors.Is(err, outbox.ErrInvalidMessage):
		return err
	case errors.Is(err, outbox.ErrNoMessage):
		return errNoMessage
	case errors.Is(err, outbox.ErrDuplicateKey):
		return errMessageExists
	}
	return ledgerError(err)
}
