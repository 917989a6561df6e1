// Package outboxtest has a broker in memory, for testing code that uses package outbox without a real one, and a suite that every way of
// delaying messages has to pass.
package outboxtest

import (
	"context"
	"sync"
	"time"

	"github.com/duebox/duebox/outbox"
)

// Broker is an outbox.Publisher that keeps what it is given and fires it at its time. The zero value is not usable; see
// NewBroker. It is safe for concurrent use.
type Broker struct {
	// Refuse, if set before the first publish, may return an error for a publication; it is then not taken.
	Refuse func(outbox.Publication) error

	mu        sync.Mutex
	published []outbox.Publication
	waiting   map[*time.Timer]struct{}
	fired     chan outbox.Delivery
	closed    bool
	epoch     int64
}

// NewBroker returns a broker that holds up to capacity fired messages until they are received; further ones are lost.
func NewBroker(capacity int) *Broker {
	return &Broker{waiting: map[*time.Timer]struct{}{}, fired: make(chan outbox.Delivery, capacity)}
}

// Publish takes each publication that Refuse lets pass.
func (b *Broker) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	b.mu.Lock()
	defer b.mu.Unlock()
	receipts := make([]outbox.Receipt, len(batch))
	for i, p := range batch {
		receipts[i].Epoch = b.epoch
		if receipts[i].Err = ctx.Err(); receipts[i].Err != nil {
			continue
		}
		if b.Refuse != nil {
			if receipts[i].Err = b.Refuse(p); receipts[i].Err != nil {
				continue
			}
		}
		b.published = append(b.published, p)
		b.fire(p)
	}
	return receipts
}

func (b *Broker) fire(p outbox.Publication) {
	wait := time.Until(p.FireAt)
	if wait <= 0 {
		b.deliver(p)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, ok := b.waiting[timer]; ok {
			delete(b.waiting, timer)
			b.deliver(p)
		}
	})
	b.waiting[timer] = struct{}{}
}

func (b *Broker) deliver(p outbox.Publication) {
	if b.closed {
		return
	}
	select {
	case b.fired <- DeliveryOf(p):
	default:
	}
}

// Lose forgets every message that has not fired yet, and begins a new epoch, as a broker that died does.
func (b *Broker) Lose(epoch int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for timer := range b.waiting {
		timer.Stop()
	}
	clear(b.waiting)
	b.epoch = epoch
}

// Fired delivers messages at their time, until Close.
func (b *Broker) Fired() <-chan outbox.Delivery { return b.fired }

// Published returns what was taken so far, in order.
func (b *Broker) Published() []outbox.Publication {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]outbox.Publication(nil), b.published...)
}

// Close stops firing and closes the channel of Fired.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for timer := range b.waiting {
		timer.Stop()
	}
	clear(b.waiting)
	b.closed = true
	close(b.fired)
}

// DeliveryOf returns what a consumer gets of a publication.
func DeliveryOf(p outbox.Publication) outbox.Delivery {
	return outbox.Delivery{
		Store: p.Store, ID: p.ID, Topic: p.Topic, Key: p.Key, Generation: p.Generation, Attempt: p.Attempt,
		DueAt: p.DueAt, Payload: p.Payload, ContentType: p.ContentType, Headers: p.Headers,
	}
}
