package outbox

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrUnconfirmed says that the outcome of a publish is unknown: the connection or channel ended first. The relay
	// publishes again; the guard drops what arrives twice.
	ErrUnconfirmed = errors.New("outbox: publish was not confirmed")
	// ErrNacked says that the broker answered that it did not take the message. The relay tries again after a pause.
	ErrNacked = errors.New("outbox: broker refused to take the message for now")
	// ErrTooSoon says that the publisher takes no message before its time, and this one's has not come. The relay reads it again.
	ErrTooSoon = errors.New("outbox: message came to the publisher before its time")
	// ErrUnpublishable says that this message alone cannot be handed to the broker. It spends one attempt.
	ErrUnpublishable = errors.New("outbox: message cannot be published")
)

// Publication is a message on its way to the broker.
type Publication struct {
	Store      string // id of the ledger
	ID         int64
	Shard      int // of the ledger, 0 to 15: messages of one key share one
	Topic      string
	Key        string // empty: none
	Generation int64
	Attempt    int // effects that have returned an error so far
	DueAt      time.Time
	// FireAt is when the broker should deliver, on this process's clock (it carries a monotonic reading, so that a
	// step of the wall clock cannot move it). It is DueAt, or the end of a retry pause.
	FireAt      time.Time
	Payload     []byte
	ContentType string
	Headers     map[string]string
}

// Receipt says what became of one publication.
type Receipt struct {
	// Err is nil only after the broker's confirm; else it wraps ErrUnconfirmed, ErrNacked, ErrTooSoon, ErrUnpublishable, or is the
	// error of the context.
	Err error
	// Epoch is the broker epoch of the connection that the confirm came on.
	Epoch int64
}

// Publisher hands messages to a broker.
//
// Publish returns one receipt for each publication, in order. It may block while the broker cannot be reached and
// returns when ctx ends at the latest. It must be safe for concurrent use: the relay calls it from several goroutines to
// keep confirms in flight. It does not keep or change the batch after it returned.
type Publisher interface {
	Publish(ctx context.Context, batch []Publication) []Receipt
}
