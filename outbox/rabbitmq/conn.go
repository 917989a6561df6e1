package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// closeLimit bounds the farewell of a connection.
const closeLimit = 2 * time.Second

// callGrace is how long an answer is still waited for when nobody needs it any more: what else goes on over the
// connection, acknowledgements above all, should not be lost to an answer that is almost there.
const callGrace = time.Second

var errNoAnswer = errors.New("the broker has not answered in time")

// connection is one connection to the broker whose calls all end. Reconnecting is done by making another.
type connection struct {
	amqp  *amqp.Connection
	wire  *wire
	limit time.Duration // of one call

	done chan struct{} // closed when the connection has ended
	said *amqp.Error   // what amqp091 says of its end; nil: closed from this side; read it after done
	idle sync.WaitGroup

	mu        sync.Mutex
	unblocked chan struct{} // closed: the broker takes messages
}

// dial opens a connection. What is given as onBlocked is told, from the connection's goroutine, when the broker stops and starts taking
// messages; it may be nil.
func (b *Broker) dial(ctx context.Context, role string, onBlocked func(blocked bool, reason string)) (*connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.DialTimeout, errNoAnswer)
	defer cancel()
	var (
		w    *wire
		stop = func() bool { return true }
	)
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(b.cfg.Name + " " + role)
	config := amqp.Config{
		Heartbeat:  b.cfg.Heartbeat,
		Properties: properties,
		Dial: func(network, address string) (net.Conn, error) {
			raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			w = newWire(raw, b.cfg.CallTimeout)
			stop = context.AfterFunc(ctx, func() { w.kill(context.Cause(ctx)) })
			return w, nil
		},
	}
	if b.cfg.TLS != nil {
		config.TLSClientConfig = b.cfg.TLS.Clone()
	}
	conn, err := amqp.DialConfig(b.url, config)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		if w != nil {
			stop()
			if lost := w.lost(); lost != nil {
				err = fmt.Errorf("%w (%w)", err, lost)
			}
			w.kill(err)
			<-w.flushed
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &connection{amqp: conn, wire: w, limit: b.cfg.CallTimeout, done: make(chan struct{}), unblocked: make(chan struct{})}
	close(c.unblocked)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	c.idle.Go(func() { c.watch(closed, blocked, onBlocked) })
	return c, nil
}

// watch follows the connection until it has ended.
func (c *connection) watch(closed <-chan *amqp.Error, blocked <-chan amqp.Blocking, onBlocked func(bool, string)) {
	defer close(c.done)
	for closed != nil || blocked != nil {
		select {
		case reason, ok := <-closed: // at most one
			if !ok {
				closed = nil
				continue
			}
			c.said = reason
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			c.wire.wait(b.Active)
			c.block(b.Active)
			if onBlocked != nil {
				onBlocked(b.Active, b.Reason)
			}
		}
	}
}

func (c *connection) block(active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.unblocked:
		if active {
			c.unblocked = make(chan struct{})
		}
	default:
		if !active {
			close(c.unblocked)
		}
	}
}

// taking returns a channel that is closed while the broker takes messages.
func (c *connection) taking() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unblocked
}

func (c *connection) isBlocked() bool {
	select {
	case <-c.taking():
		return false
	default:
		return true
	}
}

// call runs one operation of amqp091 that waits for an answer. When the time for one call ends, or callGrace after ctx has
// ended, the socket is closed: that frees the operation and ends the connection. A broker that has said that it is blocked owes no
// answer until it takes messages again.
func (c *connection) call(ctx context.Context, what string, operation func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	answered := make(chan struct{})
	var bound sync.WaitGroup
	bound.Go(func() { c.bound(ctx, answered) })
	err := operation()
	close(answered)
	bound.Wait()
	if err == nil {
		return nil
	}
	if lost := c.wire.lost(); lost != nil {
		return fmt.Errorf("%s: %w (%w)", what, err, lost)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// bound closes the socket unless a call is answered in time.
func (c *connection) bound(ctx context.Context, answered <-chan struct{}) {
	limit := time.NewTimer(c.limit)
	defer limit.Stop()
	ended := ctx.Done()
	for {
		select {
		case <-answered:
			return
		case <-ended:
			ended = nil
			limit.Reset(callGrace)
		case <-limit.C:
			switch {
			case ctx.Err() != nil:
				c.wire.kill(context.Cause(ctx))
			case c.isBlocked():
				limit.Reset(c.limit)
				continue
			default:
				c.wire.kill(errNoAnswer)
			}
			return
		}
	}
}

func (c *connection) channel(ctx context.Context) (*amqp.Channel, error) {
	var ch *amqp.Channel
	err := c.call(ctx, "open channel", func() (err error) {
		ch, err = c.amqp.Channel()
		return err
	})
	return ch, err
}

// close says farewell, also when ctx has ended, and waits until the connection's goroutines have ended, for at most about two closeLimits. It may be
// called more than once.
func (c *connection) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	_ = c.call(ctx, "close connection", c.amqp.Close) // the broker learns it from the socket otherwise
	_ = c.wire.Close()
	<-c.wire.flushed
	c.idle.Wait()
}

// cause waits for the end of the connection and returns why it has ended, which is never nil. A broker that says farewell has its reason,
// and the socket then ends without one of its own.
func (c *connection) cause() error {
	<-c.done
	lost := c.wire.lost()
	switch {
	case c.said != nil && (c.said.Server || lost == nil):
		return c.said
	case lost != nil:
		return lost
	}
	return errClosedHere
}

func (c *connection) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
