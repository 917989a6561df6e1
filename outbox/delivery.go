package outbox

import "time"

// Delivery is a message as it came back from the broker.
type Delivery struct {
	Store       string
	ID          int64
	Topic       string
	Key         string // empty: none
	Generation  int64
	Attempt     int // effects that have returned an error so far: 0 at first
	DueAt       time.Time
	Payload     []byte
	ContentType string
	Headers     map[string]string
	// Redeliveries is how often the broker has given this delivery to a consumer that did not finish it; where the broker
	// does not count (classic queues), 1 if it has. 0 says that no effect of this delivery can have begun.
	Redeliveries int
}

// Outcome says what Handle made of a delivery. After any outcome the delivery can be acknowledged.
type Outcome string

// The outcomes of Handle.
const (
	// OutcomeDone: the effect is committed.
	OutcomeDone Outcome = "done"
	// OutcomeDuplicate: the effect was committed before, or another copy of this delivery has been counted.
	OutcomeDuplicate Outcome = "duplicate"
	// OutcomeCanceled: the message was canceled before it fired.
	OutcomeCanceled Outcome = "canceled"
	// OutcomeStale: the message was rescheduled; this delivery belongs to an earlier generation.
	OutcomeStale Outcome = "stale"
	// OutcomeEarly: the delivery came more than a second before the due time; the message is scheduled again.
	OutcomeEarly Outcome = "early"
	// OutcomeRetry: the effect returned an error; the message is scheduled again after a pause.
	OutcomeRetry Outcome = "retry"
	// OutcomeDead: the effect returned an error for the last time, or the message was dead already.
	OutcomeDead Outcome = "dead"
	// OutcomeBusy: somebody has the message's row locked for long, or one that its effect needs: the effect of another copy, or a
	// transaction that stays open. The message is live, and is sent again.
	OutcomeBusy Outcome = "busy"
	// OutcomeForeign: the delivery belongs to another ledger; it is kept for an operator.
	OutcomeForeign Outcome = "foreign"
	// OutcomeUnknown: the ledger has no such message; the delivery is kept for an operator.
	OutcomeUnknown Outcome = "unknown"
)

// Stray is a delivery that no handler can be given: malformed, unrouted, foreign or unknown.
type Stray struct {
	Reason     string // malformed, unrouted, foreign, unknown
	Detail     string
	MessageID  string
	RoutingKey string
	Headers    []byte // JSON
	Payload    []byte
}
