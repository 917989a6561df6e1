package model

import "time"

// Kind is what sort of sale an order belongs to; each has its own time limit.
type Kind string

// The kinds.
const (
	Normal  Kind = "normal"
	Flash   Kind = "flash"
	Presale Kind = "presale"
)

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k == Normal || k == Flash || k == Presale }

// Status is where an order is in its life; see the package comment.
type Status string

// The statuses.
const (
	Pending Status = "pending"
	Paid    Status = "paid"
	Closed  Status = "closed"
)

// Valid reports whether s is one of the statuses.
func (s Status) Valid() bool { return s == Pending || s == Paid || s == Closed }

// Final reports whether s never changes again.
func (s Status) Final() bool { return s == Paid || s == Closed }

// CloseReason is why an order was closed; empty while it is not.
type CloseReason string

// The reasons.
const (
	Timeout CloseReason = "timeout" // not paid by its due time
	User    CloseReason = "user"    // canceled by the user
)

// Item is one line of an order.
type Item struct {
	SKU      string
	Quantity int64
	Price    int64 // of one unit, in minor units of the currency
}

// Order is an order as of one reading. Times are UTC with microseconds; the zero time means "not so far".
type Order struct {
	No          string
	Kind        Kind
	User        string
	Status      Status
	CloseReason CloseReason
	Items       []Item // as they were ordered
	Total       int64  // in minor units
	Refunded    int64  // sum of the refund records, in minor units
	DueAt       time.Time
	MessageID   int64     // of the message that closes it
	FirstDueAt  time.Time // the due time that it was placed with
	RemindedAt  time.Time // when its buyer was last reminded
	CreatedAt   time.Time
	PaidAt      time.Time
	ClosedAt    time.Time
}

// AsPlaced is the order as it was when it had just been placed.
func (o Order) AsPlaced() Order {
	o.Status, o.CloseReason, o.Refunded = Pending, "", 0
	o.DueAt = o.FirstDueAt
	o.RemindedAt, o.PaidAt, o.ClosedAt = time.Time{}, time.Time{}, time.Time{}
	return o
}

// MaxExtension is how far ahead an order's due time can be moved.
const MaxExtension = 366 * 24 * time.Hour

// CheckDue returns an *InvalidError if an order's due time cannot be moved to due at the time now.
func CheckDue(due, now time.Time) error {
	if ahead := due.Sub(now); ahead <= 0 || ahead > MaxExtension {
		return Invalid("due_at", "must be in the future, at most 366 days ahead")
	}
	return nil
}

// OrderFilter picks orders, the newest first.
type OrderFilter struct {
	User   string // empty: any
	Status Status // empty: any
	After  string // continue after this order number; empty: from the newest
	Limit  int    // 1 to MaxPage
}

// The number of orders on a page.
const (
	DefaultPage = 20
	MaxPage     = 100
)

// Validate returns an *InvalidError that names every field which breaks a rule, or nil.
func (f OrderFilter) Validate() error {
	var bad Faults
	bad.Check(f.User == "" || ValidID(f.User), "user", IDRule)
	bad.Check(f.Status == "" || f.Status.Valid(), "status", "must be pending, paid or closed")
	bad.Check(f.After == "" || ValidID(f.After), "after", IDRule)
	bad.Check(f.Limit >= 1 && f.Limit <= MaxPage, "limit", "must be 1 to 100")
	return bad.Err()
}
