package api

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/duebox/duebox/outbox"
)

// Body is what the API answers with a value of package outbox: a Record, MessagePage, Story, BulkResult or Overview. Other programs that
// show the same encode it as JSON.
func Body(v any) any {
	switch v := v.(type) {
	case outbox.Record:
		return listedBody(v)
	case outbox.MessagePage:
		body := messagePageJSON{Messages: make([]*listedJSON, len(v.Messages)), Next: v.Next}
		for i, r := range v.Messages {
			body.Messages[i] = listedBody(r)
		}
		return body
	case outbox.Story:
		return storyBody(v)
	case outbox.BulkResult:
		return bulkJSON{v.Matched, v.Changed, v.Protected, textOrNull(v.Why), v.Next != "", v.Next, stamp(v.Began)}
	case outbox.Overview:
		return overviewBody(v)
	}
	return v
}

// listedJSON is a message as operators see it.
type listedJSON struct {
	messageJSON

	AvailableAt stamp    `json:"available_at"`
	FailedAt    stamp    `json:"failed_at"`
	LatenessMs  *float64 `json:"lateness_ms"`
}

func listedBody(r outbox.Record) *listedJSON {
	body := &listedJSON{messageJSON: messageBody(r), AvailableAt: stamp(r.AvailableAt), FailedAt: stamp(r.FailedAt)}
	if late, known := r.Lateness(); known {
		body.LatenessMs = millis(&late)
	}
	return body
}

// millis is a duration in milliseconds, null without one.
func millis(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	ms := float64(d.Microseconds()) / 1000
	return &ms
}

type messagePageJSON struct {
	Messages []*listedJSON `json:"messages"`
	Next     string        `json:"next"`
}

type bulkJSON struct {
	Matched   int     `json:"matched"`
	Changed   int     `json:"changed"`
	Protected int     `json:"protected"`
	Why       *string `json:"why"`
	More      bool    `json:"more"`
	Next      string  `json:"next"`
	BeganAt   stamp   `json:"began_at"`
}

type storyJSON struct {
	Message storyMessageJSON `json:"message"`
	Story   []eventJSON      `json:"story"`
}

type storyMessageJSON struct {
	*listedJSON

	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	contentJSON
}

// contentJSON is a payload or its beginning: text as it is, and what is no text as base64.
type contentJSON struct {
	Payload       *string `json:"payload"`
	PayloadBase64 []byte  `json:"payload_base64"`
	PayloadBytes  int     `json:"payload_bytes"`
}

func contentBody(payload []byte, whole int) contentJSON {
	// A character that the cut has gone through does not make the rest of a text bytes.
	text := payload
	for range min(utf8.UTFMax-1, whole-len(payload), len(text)) {
		if utf8.Valid(text) {
			break
		}
		text = text[:len(text)-1]
	}
	if !utf8.Valid(text) {
		return contentJSON{PayloadBase64: payload, PayloadBytes: whole}
	}
	s := string(text)
	return contentJSON{Payload: &s, PayloadBytes: whole}
}

type eventJSON struct {
	At         stamp    `json:"at"`
	What       string   `json:"what"`
	LatenessMs *float64 `json:"lateness_ms"`
	Actor      string   `json:"actor"`
	Via        string   `json:"via"`
	Detail     string   `json:"detail"`
}

func storyBody(s outbox.Story) storyJSON {
	body := storyJSON{
		Message: storyMessageJSON{listedBody(s.Record), s.ContentType, s.Headers, contentBody(s.Payload, s.PayloadBytes)},
		Story:   make([]eventJSON, len(s.Events)),
	}
	if s.Headers == nil {
		body.Message.Headers = map[string]string{}
	}
	for i, e := range s.Events {
		body.Story[i] = eventJSON{stamp(e.At), e.What, millis(e.Lateness), e.Actor.Name, e.Actor.Via, e.Detail}
	}
	return body
}

type auditPageJSON struct {
	Entries []auditJSON `json:"entries"`
	Next    string      `json:"next"`
}

type auditJSON struct {
	ID        string `json:"id"`
	At        stamp  `json:"at"`
	Actor     string `json:"actor"`
	Via       string `json:"via"`
	Action    string `json:"action"`
	MessageID string `json:"message_id"`
	Topic     string `json:"topic"`
	Key       string `json:"key"`
	Detail    string `json:"detail"`
}

// cutAt makes a page of limit rows, of one row more if the list goes on; next is where.
func cutAt[T any](rows []T, limit int, id func(T) int64) (shown []T, next string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], strconv.FormatInt(id(rows[limit-1]), 10)
}

func auditPage(entries []outbox.AuditEntry, limit int) auditPageJSON {
	entries, next := cutAt(entries, limit, func(e outbox.AuditEntry) int64 { return e.ID })
	body := auditPageJSON{Entries: make([]auditJSON, len(entries)), Next: next}
	for i, e := range entries {
		body.Entries[i] = auditJSON{
			strconv.FormatInt(e.ID, 10), stamp(e.At), e.Actor.Name, e.Actor.Via, string(e.Action),
			strconv.FormatInt(e.MessageID, 10), e.Topic, e.Key, e.Detail,
		}
	}
	return body
}

type keptPageJSON struct {
	Deliveries []keptJSON `json:"deliveries"`
	Next       string     `json:"next"`
}

type keptJSON struct {
	ID        string          `json:"id"`
	KeptAt    stamp           `json:"kept_at"`
	Reason    string          `json:"reason"`
	Detail    string          `json:"detail"`
	MessageID string          `json:"message_id"`
	Topic     string          `json:"topic"`
	Headers   json.RawMessage `json:"headers"`
	contentJSON
}

func keptPage(kept []outbox.Kept, limit int) keptPageJSON {
	kept, next := cutAt(kept, limit, func(k outbox.Kept) int64 { return k.ID })
	body := keptPageJSON{Deliveries: make([]keptJSON, len(kept)), Next: next}
	for i, k := range kept {
		body.Deliveries[i] = keptJSON{
			strconv.FormatInt(k.ID, 10), stamp(k.KeptAt), k.Reason, k.Detail, printable(k.MessageID), printable(k.RoutingKey), objectOrNull(k.Headers),
			contentBody(k.Payload, k.PayloadBytes),
		}
	}
	return body
}

// objectOrNull is null for what is no JSON object, such as one that was cut.
func objectOrNull(text []byte) json.RawMessage {
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil || fields == nil {
		return json.RawMessage("null")
	}
	return text
}

// printable shows what a broker has said, which may be anything.
func printable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return shown(s)
}

type runPageJSON struct {
	Runs []runJSON `json:"runs"`
	Next string    `json:"next"`
}

func runPage(runs []outbox.Run, limit int) runPageJSON {
	runs, next := cutAt(runs, limit, func(r outbox.Run) int64 { return r.ID })
	body := runPageJSON{Runs: make([]runJSON, len(runs)), Next: next}
	for i, r := range runs {
		body.Runs[i] = runBody(r)
	}
	return body
}

type orderWithMessagesJSON struct {
	Order    orderJSON         `json:"order"`
	Messages orderMessagesJSON `json:"messages"`
}

type orderMessagesJSON struct {
	Expire *listedJSON `json:"expire"`
	Remind *listedJSON `json:"remind"`
}
