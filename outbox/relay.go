package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// RelayConfig tunes a Relay. The zero value is usable.
type RelayConfig struct {
	// Owner names this relay among all that share the ledger; it must be unique among the living: 1 to 64 bytes of
	// [A-Za-z0-9._-]. Default: the host's name, the process's number and something random.
	Owner string
	// Horizon is how far ahead of its due time a message is handed to a publisher that takes any (Reach.UpTo), and no further than
	// that one takes it. For others it means nothing. Default 10 min.
	Horizon time.Duration
	// Reach is asked how far ahead of their time the publisher takes messages just now. What it does not take yet the relay reads
	// about two seconds before, and hands each over at its millisecond: what was read is no more than a reading, so a crash
	// loses nothing, and a message that is canceled or rescheduled in that time takes no effect. Default: the
	// publisher's method of this name, as that of package rabbitmq has one, else any message at once.
	Reach func() Reach
	// Grace is how long after its due time a published message may stay without effect before the reconciler looks
	// into it. Default 30 s.
	Grace time.Duration
	// Lease is how long a shard stays with a relay that says nothing. Default 9 s; renewed at a third of it. Relays of one ledger should have the
	// same; one that has more than ten times another's loses its shards to that one again and again.
	Lease time.Duration
	// Poll is the pause between two looks for new work when there is none. Default 200 ms.
	Poll time.Duration
	// MaxInFlight bounds the rows taken and not yet settled. Default 4096.
	MaxInFlight int
	// MaxInFlightBytes bounds their payloads and headers. Default 32 MiB.
	MaxInFlightBytes int
	// DrainTimeout is how long Run goes on, after its context ended, to get the outcome of what is in flight. Default 10 s.
	DrainTimeout time.Duration
	// Heartbeat is asked, at a third of Lease, what the process has to say of itself; Store.Peers shows it. It must return at once.
	// Default: nothing.
	Heartbeat func() Heartbeat
	// Log receives what an operator should know. Default: discarded.
	Log *slog.Logger
}

const (
	chunkRows   = 256
	publishers  = 4 // Publish calls at a time: the confirms of some overlap the settling of others
	scanRows    = 1024
	frontEvery  = time.Second
	errorPause  = time.Second
	nackedPause = time.Second
)

// Relay hands scheduled messages to a Publisher. Any number of relays, in any number of processes, share a ledger: each
// leases some of its shards.
type Relay struct {
	store     *Store
	publisher Publisher
	cfg       RelayConfig
	log       *slog.Logger
	leases    *leases
	flight    *flight
	scanner   scanner                    // of what is due, up to the horizon
	delayed   map[time.Duration]*scanner // of what is ahead by a delay
}

// NewRelay returns a relay. It does no I/O.
func NewRelay(store *Store, publisher Publisher, cfg RelayConfig) (*Relay, error) {
	if cfg.Owner == "" {
		cfg.Owner = newOwner()
	}
	setDefault(&cfg.Horizon, 10*time.Minute)
	setDefault(&cfg.Grace, 30*time.Second)
	setDefault(&cfg.Lease, 9*time.Second)
	setDefault(&cfg.Poll, 200*time.Millisecond)
	setDefault(&cfg.MaxInFlight, 4096)
	setDefault(&cfg.MaxInFlightBytes, 32<<20)
	setDefault(&cfg.DrainTimeout, 10*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Reach == nil {
		cfg.Reach = anywhere
		if p, ok := publisher.(interface{ Reach() Reach }); ok {
			cfg.Reach = p.Reach
		}
	}
	switch {
	case store == nil || publisher == nil:
		return nil, errors.New("outbox: a relay needs a store and a publisher")
	case !isName(cfg.Owner, 64):
		return nil, fmt.Errorf("outbox: Owner %q is not 1 to 64 characters of [A-Za-z0-9._-]", clip(cfg.Owner))
	case cfg.Horizon < 0 || cfg.Grace < 0 || cfg.DrainTimeout < 0:
		return nil, errors.New("outbox: Horizon, Grace and DrainTimeout must not be negative")
	case cfg.Poll < time.Millisecond:
		return nil, fmt.Errorf("outbox: Poll is %v, below 1ms", cfg.Poll)
	case cfg.Lease < 500*time.Millisecond:
		return nil, fmt.Errorf("outbox: Lease is %v, below 500ms", cfg.Lease)
	case cfg.MaxInFlight < shards || cfg.MaxInFlightBytes < 1:
		return nil, fmt.Errorf("outbox: MaxInFlight is %d, below %d, or MaxInFlightBytes below 1", cfg.MaxInFlight, shards)
	}
	return &Relay{
		store: store, publisher: publisher, cfg: cfg, log: cfg.Log,
		leases:  newLeases(store, cfg.Owner, cfg.Lease, cfg.Heartbeat),
		flight:  newFlight(cfg.MaxInFlight, cfg.MaxInFlightBytes),
		delayed: map[time.Duration]*scanner{},
	}, nil
}

// Owner returns the name of this relay, see RelayConfig.Owner.
func (r *Relay) Owner() string { return r.cfg.Owner }

func newOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		if !isName(string(r), 1) {
			return '_'
		}
		return r
	}, host)
	return fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Run hands over messages until ctx ends, then takes no more, waits up to DrainTimeout for the confirms of what is in flight,
// settles it, gives its shards back and returns. Errors of the database and the broker are logged and tried again for
// ever; the error is nil unless the shards could not be given back, which costs the next relay one lease's wait.
//
// A Relay runs once.
func (r *Relay) Run(ctx context.Context) error {
	// What is in flight outlives ctx, but not the drain.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	drained := context.AfterFunc(ctx, func() {
		t := time.NewTimer(r.cfg.DrainTimeout)
		defer t.Stop()
		select {
		case <-t.C:
			stop()
		case <-work.Done():
		}
	})
	defer drained()

	var (
		all, publishing sync.WaitGroup
		chunks          = make(chan []item)
		confirmed       = make(chan []confirmation, publishers)
	)
	all.Go(func() { r.keepLeases(work) })
	for range publishers {
		publishing.Go(func() { r.publish(work, chunks, confirmed) })
	}
	settled := make(chan struct{})
	all.Go(func() {
		defer close(settled)
		r.settle(work, confirmed)
	})
	r.take(ctx, chunks) // until ctx ends
	close(chunks)
	publishing.Wait()
	close(confirmed)
	<-settled
	stop()
	all.Wait()

	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return r.leases.leave(bye)
}

func (r *Relay) keepLeases(ctx context.Context) {
	var warned seldom
	for {
		lost, err := r.leases.tick(ctx, r.flight.ofShard)
		if err != nil && ctx.Err() == nil && warned.again() {
			r.log.WarnContext(ctx, "leases not renewed", "error", err)
		}
		if lost > 0 {
			r.store.cfg.Observer.leaseLost(lost)
			r.log.WarnContext(ctx, "leases lost", "shards", lost)
		}
		if sleep(ctx, r.cfg.Lease/3) != nil {
			return
		}
	}
}

// seldom tells, at most once in ten seconds, that it is time to say again what has been said: an outage has one reason for
// all attempts.
type seldom struct{ next time.Time }

func (s *seldom) again() bool {
	now := time.Now()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(10 * time.Second)
	return true
}

// take reads work until ctx ends and passes it on in chunks.
func (r *Relay) take(ctx context.Context, chunks chan<- []item) {
	var (
		waiting []item    // released at their time
		next    time.Time // when to look for new work
		warned  seldom
	)
	for ctx.Err() == nil {
		more := false
		if !time.Now().Before(next) {
			items, some, err := r.scan(ctx, len(waiting))
			for _, it := range items {
				if it.broken != nil {
					r.unpublishable(ctx, it, it.broken)
					continue
				}
				waiting = append(waiting, it)
			}
			switch {
			case err != nil:
				if ctx.Err() == nil && warned.again() {
					r.log.WarnContext(ctx, "reading work", "error", err)
				}
				next = time.Now().Add(errorPause)
			case some:
				more = true
			default:
				next = time.Now().Add(r.cfg.Poll)
			}
		}
		var ready []item
		var pause time.Duration
		ready, waiting, pause = release(waiting, time.Until(next))
		for chunk := range slices.Chunk(ready, chunkRows) {
			select {
			case chunks <- chunk:
			case <-ctx.Done():
				return
			}
		}
		if !more && r.rest(ctx, pause) {
			next = time.Now()
		}
	}
}

// rest waits for d or, when so much is in flight that no more is taken, until some of it has ended: then it returns true.
func (r *Relay) rest(ctx context.Context, d time.Duration) (freed bool) {
	var free <-chan struct{}
	if rows, bytes := r.flight.room(); rows < r.cfg.MaxInFlight/4 || bytes <= 0 {
		free = r.flight.free
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-free:
		return true
	case <-ctx.Done():
	}
	return false
}

// release divides what waits into that whose time has come and the rest, and shortens pause to the next one's time.
func release(waiting []item, pause time.Duration) (ready, rest []item, next time.Duration) {
	rest = waiting[:0]
	for _, it := range waiting {
		if wait := time.Until(it.takenAt); wait > 0 {
			pause = min(pause, wait)
			rest = append(rest, it)
			continue
		}
		ready = append(ready, it)
	}
	return ready, rest, pause
}

// confirmation is a row that the broker has confirmed.
type confirmation struct {
	item
	epoch int64
	due   bool // it was due when it was published, so its effect may already be there
}

func (r *Relay) publish(ctx context.Context, chunks <-chan []item, confirmed chan<- []confirmation) {
	for chunk := range chunks {
		var letGo []item
		batch := make([]Publication, len(chunk))
		for i := range chunk {
			batch[i] = chunk[i].pub
		}
		start := time.Now()
		receipts := r.publisher.Publish(ctx, batch)
		took := time.Since(start)
		done := make([]confirmation, 0, len(chunk))
		var nacked error
		for i, it := range chunk {
			receipt := Receipt{Err: ErrUnconfirmed}
			if i < len(receipts) {
				receipt = receipts[i]
			}
			r.store.cfg.Observer.published(it.pub.Topic, took, receipt.Err)
			switch {
			case receipt.Err == nil:
				done = append(done, confirmation{item: it, epoch: receipt.Epoch, due: !it.pub.FireAt.After(start)})
			case errors.Is(receipt.Err, ErrUnpublishable):
				r.unpublishable(ctx, it, receipt.Err)
			default:
				if errors.Is(receipt.Err, ErrNacked) {
					nacked = receipt.Err
				}
				letGo = append(letGo, it)
			}
		}
		if len(done) > 0 {
			confirmed <- done // the settler reads until this side has ended
		}
		if nacked != nil {
			r.log.WarnContext(ctx, "broker takes no messages for now", "error", nacked)
			_ = sleep(ctx, nackedPause)
		}
		r.letGo(letGo...)
	}
}

// letGo lets rows that were not confirmed be taken again by the next scan from the front.
func (r *Relay) letGo(items ...item) {
	for _, it := range items {
		r.scanner.lower(it)
	}
	r.flight.end(items...)
}

// unpublishable spends an attempt of a row that the broker will not take for its own fault.
func (r *Relay) unpublishable(ctx context.Context, it item, cause error) {
	r.log.WarnContext(ctx, "message cannot be published", "id", it.pub.ID, "topic", it.pub.Topic, "error", cause)
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	n, outcome, err := r.store.spendAttempt(ctx, it.pub.ID, it.pub.Attempt, "revision", it.revision, cause)
	switch {
	case err != nil:
		r.log.WarnContext(ctx, "attempt not counted", "id", it.pub.ID, "error", err)
	case n > 0 && outcome == OutcomeDead:
		r.store.cfg.Observer.died("unpublishable", 1)
		r.log.ErrorContext(ctx, "message is dead and waits for an operator", "id", it.pub.ID, "topic", it.pub.Topic, "key", it.pub.Key,
			"attempt", it.pub.Attempt+1, "error", errorText(cause))
	}
	r.letGo(it)
}
