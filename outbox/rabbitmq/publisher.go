package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duebox/duebox/outbox"
)

// PublisherConfig tunes a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Strategy is how messages come to fire. Default Auto.
	Strategy Strategy
	// Tiers are the delays of strategy Tiers, in any order: 1 to 16, of whole milliseconds, from 1 s to 49 days. Default 10 min,
	// 30 min, 24 h.
	Tiers []time.Duration
	// Window is how many confirms one Publish call has outstanding. Default 1000.
	Window int
	// ConfirmTimeout is how long the broker may owe a confirm, unless it has said that it is blocked; then the connection
	// is given up and the outcome is unknown. Default 30 s.
	ConfirmTimeout time.Duration
	// Topics are those whose work queues are made at each connection. On a broker that has come back empty, what is due at once
	// would reach no queue otherwise until a consumer is back as well. Default: none.
	Topics []string
}

// Publisher hands messages to the broker. It implements outbox.Publisher and is safe for concurrent use.
type Publisher struct {
	broker   *Broker
	epochs   Epochs
	cfg      PublisherConfig
	choose   func(ctx context.Context) (s strategy, why string, err error)
	logs     throttle
	alone    chan struct{} // capacity 1: held while suspects are tried
	blame    blame
	unmarked atomic.Bool // an epoch was raised here although its mark could not be put
	every    time.Duration

	mu      sync.Mutex
	running bool
	session *session      // nil: not connected
	changed chan struct{} // closed when session changes
	state   PublisherState
	reach   outbox.Reach // of the connection's strategy, or of the last one's
}

// PublisherState is how a publisher is doing.
type PublisherState struct {
	Connected bool
	Blocked   bool      // the broker takes no messages for now
	Strategy  Strategy  // of the connection, or of the last one; before the first what was asked for
	Why       string    // that strategy
	Epoch     int64     // of the connection, or of the last one; 0: there was none
	Reason    string    // why the publisher is not connected, or blocked
	Since     time.Time // when Connected and Blocked came to be as they are; zero: Run was never called
}

// NewPublisher returns a publisher for the broker, with the ledger's count of the broker's lives. It does no I/O.
func NewPublisher(broker *Broker, epochs Epochs, cfg PublisherConfig) (*Publisher, error) {
	setDefault(&cfg.Strategy, Auto)
	setDefault(&cfg.Window, 1000)
	setDefault(&cfg.ConfirmTimeout, 30*time.Second)
	switch {
	case broker == nil || epochs == nil:
		return nil, errors.New("rabbitmq: a publisher needs a broker and the ledger's epochs")
	case !slices.Contains(Strategies(), cfg.Strategy):
		return nil, fmt.Errorf("rabbitmq: Strategy is %q, not one of %q", cfg.Strategy, Strategies())
	case cfg.Window < 0 || cfg.ConfirmTimeout < 0:
		return nil, fmt.Errorf("rabbitmq: Window is %d and ConfirmTimeout %v, one is below zero", cfg.Window, cfg.ConfirmTimeout)
	}
	if cfg.Tiers == nil {
		cfg.Tiers = []time.Duration{10 * time.Minute, 30 * time.Minute, 24 * time.Hour}
	}
	if err := checkTiers(cfg.Tiers); err != nil {
		return nil, fmt.Errorf("rabbitmq: Tiers: %w", err)
	}
	for _, topic := range cfg.Topics {
		if !outbox.ValidTopic(topic) {
			return nil, fmt.Errorf("rabbitmq: topic %.80q is not 1 to %d characters of [A-Za-z0-9._-]", topic, outbox.MaxTopicBytes)
		}
	}
	p := &Publisher{
		broker: broker, epochs: epochs, cfg: cfg,
		logs:    throttle{period: 10 * time.Second},
		alone:   make(chan struct{}, 1),
		changed: make(chan struct{}),
		every:   checkEvery,
	}
	p.choose = p.chosen
	p.state = PublisherState{Strategy: cfg.Strategy, Reason: "not started"}
	p.reach = plugin{broker}.reach()
	if s := p.asked(); s != nil {
		p.reach = s.reach()
	}
	return p, nil
}

// checkEvery is how often a connection makes sure of what it publishes into, and a consumer that the broker has it still.
const checkEvery = 15 * time.Second

// settledAfter is how long a connection must last for the next one to be tried without a long pause.
const settledAfter = 10 * time.Second

// Run keeps a connection to the broker until ctx ends, and then closes it: end the callers of Publish first. It makes lost
// connections again for ever and returns nil, or an error if it is running already. It may be run again after it returned.
func (p *Publisher) Run(ctx context.Context) error {
	if !p.start() {
		return errors.New("rabbitmq: the publisher is running already")
	}
	defer p.finish()
	pauses := newPauses()
	for {
		s, err := p.open(ctx)
		if err == nil {
			start := time.Now()
			err = p.serve(ctx, s)
			if s.guilt || time.Since(start) > settledAfter {
				pauses.Reset()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		p.note(err)
		p.logs.pass(p.broker.cfg.Log).LogAttrs(ctx, slog.LevelWarn, "no connection for publishing", slog.Any("error", err))
		if !pause(ctx, pauses.NextBackOff(), nil) {
			return nil
		}
	}
}

// serve offers s to the callers of Publish until it or ctx ends or its check fails, and returns why it did.
func (p *Publisher) serve(ctx context.Context, s *session) error {
	p.set(s)
	p.broker.cfg.Observer.connected(RolePublisher)
	p.broker.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "connected for publishing",
		slog.String("strategy", string(s.strategy.name())), slog.String("why", s.why), slog.Int64("epoch", s.epoch))
	cause := p.attend(ctx, s)
	p.set(nil)
	s.close(ctx)
	if cause == nil {
		cause = s.cause
	}
	p.broker.cfg.Observer.disconnected(RolePublisher, cause)
	return cause
}

// attend returns when s or ctx has ended, or with the reason to end s.
func (p *Publisher) attend(ctx context.Context, s *session) error {
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := p.check(ctx, s); err != nil {
				return err
			}
		}
	}
}

func (p *Publisher) start() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		return false
	}
	p.running = true
	p.state.Reason, p.state.Since = "connecting", time.Now()
	return true
}

func (p *Publisher) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	p.state.Reason = "stopped"
}

func (p *Publisher) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Reason = err.Error()
}

func (p *Publisher) set(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = s
	p.state.Connected, p.state.Blocked, p.state.Reason, p.state.Since = s != nil, false, "", time.Now()
	if s != nil {
		p.state.Epoch = s.epoch
		p.state.Strategy, p.state.Why = s.strategy.name(), s.why
		p.reach = s.strategy.reach()
		p.state.Blocked = s.conn.isBlocked()
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Publisher) onBlocked(ctx context.Context, blocked bool, reason string) {
	p.mu.Lock()
	p.state.Blocked, p.state.Reason, p.state.Since = blocked, reason, time.Now()
	p.mu.Unlock()
	p.broker.cfg.Observer.blocked(RolePublisher, blocked, reason)
	if blocked {
		p.broker.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "broker takes no messages for now", slog.String("reason", reason))
	} else {
		p.broker.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "broker takes messages again")
	}
}

// State returns how the publisher is doing.
func (p *Publisher) State() PublisherState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Reach returns how far ahead of their time messages are taken: by the strategy of the connection, or of the last one. Before the
// first it is that of the strategy that was asked for. With Auto that of Plugin: what another process has published ahead is
// not left over as long as nobody has asked the broker. It is meant for outbox.RelayConfig and outbox.ReconcileConfig.
func (p *Publisher) Reach() outbox.Reach {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reach
}

// awaitSession returns the session that publications go to, or the error of ctx.
func (p *Publisher) awaitSession(ctx context.Context) (*session, error) {
	for {
		p.mu.Lock()
		s, changed := p.session, p.changed
		p.mu.Unlock()
		if s != nil && !s.over() {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Publish hands over the batch and returns a receipt for each publication, in order, when the broker has answered for all.
// While there is no connection, or the broker is blocked, it waits until ctx ends; without a running Run it waits for ever.
// Publications that were sent when ctx ended are outbox.ErrUnconfirmed; those that were not have the error of ctx.
//
// Calls from several goroutines share the connection; each keeps up to PublisherConfig.Window confirms outstanding.
func (p *Publisher) Publish(ctx context.Context, batch []outbox.Publication) []outbox.Receipt {
	var (
		receipts = make([]outbox.Receipt, len(batch))
		suspects []int
	)
	for next := 0; next < len(batch); {
		s, err := p.awaitSession(ctx)
		if err == nil {
			next, suspects = s.publish(ctx, batch, next, p.cfg.Window, receipts, suspects)
			err = ctx.Err()
		}
		if err != nil {
			for ; next < len(batch); next++ {
				receipts[next].Err = err
			}
		}
	}
	p.tryAlone(ctx, batch, suspects, receipts)
	return receipts
}
