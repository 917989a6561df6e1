package chaos

import (
	"sync"
	"time"
)

// Ledger is what the clients were told. Safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	orders []*Order
	stock  map[string]int64
	counts Counts
}

// Order is one order as its client knows it.
type Order struct {
	User string // of this order alone
	Kind string
	// No is empty while it is not known whether the order exists.
	No    string
	Total int64
	// Canceled says that a cancel was answered with 200.
	Canceled bool
	// Due is the due time that was last acknowledged.
	Due time.Time
	// Paid are the ids of the payments that were answered with 200.
	Paid []string
}

// Counts are those of answers to clients.
type Counts struct {
	Placed, Unknown, Paid, Canceled, Rescheduled int
	// Moves are attempts to reschedule that were answered; NoRoute of them said that there is no such thing.
	Moves, NoRoute int
}

// NewLedger is empty.
func NewLedger() *Ledger { return &Ledger{stock: map[string]int64{}} }

// Stocked notes how many units of a product there are.
func (l *Ledger) Stocked(sku string, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stock[sku] = units
}

// Add takes an order in, before its client asks for it.
func (l *Ledger) Add(o *Order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders = append(l.orders, o)
}

func (l *Ledger) note(change func(*Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.counts)
}

// Counts is how it stands.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}
