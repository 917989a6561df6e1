package rabbitmq

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// wireRoom is how many unwritten bytes a wire holds before publishing waits.
const wireRoom = 256 << 10

// wireChunk is the most that is written under one deadline.
const wireChunk = 256 << 10

// wireLinger is how long a wire that was closed may still write what it holds.
const wireLinger = time.Second

// wire is the socket below a connection. The client library writes while it holds its locks, so a peer that stops reading
// would make each of its calls hang for ever, context or not. A wire takes every write into memory at once; one goroutine
// brings it to the socket, many frames in one system call, under a deadline. Whoever adds much asks for room first.
//
// Deadlines for writing are the wire's own; those that are set from above count for reading only.
type wire struct {
	net.Conn // the raw socket

	timeout time.Duration
	wake    chan struct{} // capacity 1
	flushed chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	out     []byte
	room    chan struct{} // closed when out was taken; nil: nobody waits
	patient bool          // the peer has said that it does not read for now
	closing bool
	cause   error // why the wire is of no use; the first reason stays
}

func newWire(raw net.Conn, timeout time.Duration) *wire {
	w := &wire{Conn: raw, timeout: timeout, wake: make(chan struct{}, 1), flushed: make(chan struct{})}
	go w.flush()
	return w
}

// Write never blocks and does not keep p.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.cause != nil {
		return 0, net.ErrClosed
	}
	w.out = append(w.out, p...)
	w.signal()
	return len(p), nil
}

func (w *wire) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.kill(err)
	}
	return n, err
}

// Close lets what was written reach the peer for a moment; it does not wait for that.
func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.closing = true
		_ = w.Conn.SetWriteDeadline(time.Now().Add(wireLinger))
		w.signal()
	}
	return nil
}

// kill closes the socket at once: whoever reads from it or waits for an answer is freed.
func (w *wire) kill(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil && !w.closing {
		w.cause = cause
	}
	w.closing = true
	w.out = nil
	_ = w.Conn.Close()
	w.signal()
}

// lost returns why the socket ended; nil while it has not, or when it was closed from this side.
func (w *wire) lost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// wait says whether the peer has announced that it does not read for now. Then no write is too slow.
func (w *wire) wait(patient bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patient = patient
	w.limit()
}

// limit sets the deadline of the write that is under way or about to start; w.mu is held.
func (w *wire) limit() {
	switch {
	case w.closing:
	case w.patient:
		_ = w.Conn.SetWriteDeadline(time.Time{})
	default:
		_ = w.Conn.SetWriteDeadline(time.Now().Add(w.timeout))
	}
}

// awaitRoom returns when the wire can take more, has ended, or with the error of ctx.
func (w *wire) awaitRoom(ctx context.Context) error {
	for {
		w.mu.Lock()
		if len(w.out) < wireRoom || w.closing {
			w.mu.Unlock()
			return nil
		}
		if w.room == nil {
			w.room = make(chan struct{})
		}
		room := w.room
		w.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// flush brings what is written to the socket until the wire is closed, and then closes the socket.
func (w *wire) flush() {
	defer close(w.flushed)
	defer func() { _ = w.Conn.Close() }()
	var spare []byte
	for {
		w.mu.Lock()
		chunk := w.out
		if len(chunk) > 0 {
			w.out = spare[:0]
		}
		closing := w.closing
		if w.room != nil {
			close(w.room)
			w.room = nil
		}
		w.mu.Unlock()
		switch {
		case len(chunk) > 0:
			if err := w.writeAll(chunk); err != nil {
				w.kill(err)
				return
			}
			if spare = chunk; cap(spare) > 4*wireRoom {
				spare = nil
			}
		case closing:
			return
		default:
			<-w.wake
		}
	}
}

var errSlowWire = errors.New("the broker has stopped reading")

func (w *wire) writeAll(p []byte) error {
	for len(p) > 0 {
		w.mu.Lock()
		w.limit()
		w.mu.Unlock()
		n, err := w.Conn.Write(p[:min(len(p), wireChunk)])
		if err != nil {
			if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
				return errSlowWire
			}
			return err
		}
		p = p[n:]
	}
	return nil
}

// SetDeadline sets the deadline for reading.
func (w *wire) SetDeadline(t time.Time) error { return w.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
