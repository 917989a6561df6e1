package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Message is a message as of one reading, without its payload. A time that has not come is zero.
type Message struct {
	Topic       string    `json:"topic"`
	Key         string    `json:"key"`
	ID          string    `json:"id"`
	State       string    `json:"state"` // scheduled, published, done, canceled or dead
	Generation  int64     `json:"generation"`
	DueAt       time.Time `json:"due_at"`
	Tracked     bool      `json:"tracked"`
	Attempts    int       `json:"attempts"`
	Publishes   int       `json:"publishes"`
	Repairs     int       `json:"repairs"`
	LastError   string    `json:"last_error"`
	CreatedAt   time.Time `json:"created_at"`
	PublishedAt time.Time `json:"published_at"`
	FinishedAt  time.Time `json:"finished_at"`
}

// NewMessage is a message to write. The zero value is one without a payload that is due at once.
type NewMessage struct {
	Payload     json.RawMessage   // a JSON value; blanks between its tokens are left out
	Bytes       []byte            // instead of Payload
	ContentType string            // default: application/json, and application/octet-stream for Bytes
	Headers     map[string]string // travel with it
	DueAt       time.Time
	Delay       time.Duration // from the server's now, instead of DueAt
	Untracked   bool
	// IfNone refuses to replace a live message: MessageExists. It is sent once then, as a repetition would meet itself.
	IfNone bool
}

// newMessageJSON is how a NewMessage travels.
type newMessageJSON struct {
	Payload     json.RawMessage   `json:"payload,omitempty"`
	Bytes       []byte            `json:"payload_base64,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Tracked     bool              `json:"tracked"`
	when
}

// when is a time, or a delay from now.
type when struct {
	DueAt *time.Time `json:"due_at,omitempty"`
	Delay string     `json:"delay,omitempty"`
}

func whenOf(due time.Time, delay time.Duration) (w when) {
	if !due.IsZero() {
		w.DueAt = &due
	}
	if delay != 0 {
		w.Delay = delay.String()
	}
	return w
}

// PutMessage writes a message; replaced says that a live one of its topic and key has become it.
func (c *Client) PutMessage(ctx context.Context, topic, key string, n NewMessage) (m Message, replaced bool, err error) {
	header := http.Header{}
	if n.IfNone {
		header.Set("If-None-Match", "*")
	}
	body := newMessageJSON{n.Payload, n.Bytes, n.ContentType, n.Headers, !n.Untracked, whenOf(n.DueAt, n.Delay)}
	status, err := c.do(ctx, call{
		method: http.MethodPut, path: path("v1", "messages", topic, key), header: header, body: body, once: n.IfNone, into: &m,
	})
	return m, status == http.StatusOK, err
}

// GetMessage reads the live message of a topic and key, or with an id the one that has it, also when it has ended.
func (c *Client) GetMessage(ctx context.Context, topic, key, id string) (m Message, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: path("v1", "messages", topic, key), query: queryOf(map[string]string{"id": id}), into: &m})
	return m, err
}

// MoveMessage gives the live message another due time: due, or if that is zero a delay from the server's now.
func (c *Client) MoveMessage(ctx context.Context, topic, key string, due time.Time, delay time.Duration) (m Message, err error) {
	body := whenOf(due, delay)
	if due.IsZero() {
		body.Delay = delay.String()
	}
	_, err = c.do(ctx, call{method: http.MethodPatch, path: path("v1", "messages", topic, key), body: body, into: &m})
	return m, err
}

// WithdrawMessage withdraws the live message. NoSuchMessage says that there is none; it may be this call that has withdrawn it, if
// a try of it was left without an answer.
func (c *Client) WithdrawMessage(ctx context.Context, topic, key string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("v1", "messages", topic, key)})
	return err
}

// Delivery is what the headers of a delivery say: duebox-id, duebox-generation and duebox-store, which may be left out.
type Delivery struct {
	ID         string
	Generation int64
	Store      string
}

// AskDelivery asks whether the effect of a delivery may run now; nil says so. DeliveryEarly asks to come back after RetryAfter; what any
// other problem than that names will never run.
func (c *Client) AskDelivery(ctx context.Context, d Delivery) error {
	q := queryOf(map[string]string{"generation": strconv.FormatInt(d.Generation, 10), "store": d.Store})
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("v1", "deliveries", d.ID), query: q})
	return err
}

// FinishDelivery says that the effect of a delivery has happened. It may be said more than once.
func (c *Client) FinishDelivery(ctx context.Context, d Delivery) error {
	body := struct {
		Generation int64  `json:"generation"`
		Store      string `json:"store,omitempty"`
	}{d.Generation, d.Store}
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("v1", "deliveries", d.ID, "done"), body: body})
	return err
}
