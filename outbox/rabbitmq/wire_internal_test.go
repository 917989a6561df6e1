package rabbitmq

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

const testPatience = 30 * time.Second

// pair returns a wire and the peer's end of the same TCP connection.
func pair(t *testing.T, timeout time.Duration) (*wire, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	peer := <-accepted
	require.NotNil(t, peer)
	w := newWire(raw, timeout)
	t.Cleanup(func() {
		w.kill(errClosedHere)
		<-w.flushed
		_ = peer.Close()
	})
	return w, peer
}

func ended(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testPatience):
		require.Fail(t, "it has not ended")
	}
}

// fill writes more than the socket and the wire have room for.
func fill(w *wire) {
	for range 32 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
}

func TestWire_WritesWhatItWasGivenInOrderAndFlushesAtClose(t *testing.T) {
	t.Parallel()
	w, peer := pair(t, testPatience)
	var all []byte
	for i := range 100_000 {
		part := []byte{byte(i), byte(i >> 8), byte(i >> 16)}
		all = append(all, part...)
		_, err := w.Write(part)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	got, err := io.ReadAll(peer)
	require.NoError(t, err)
	require.Equal(t, all, got)
	require.NoError(t, w.lost(), "it was closed from this side")
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestWire_NeverBlocksAWriterAndGivesUpAPeerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w, _ := pair(t, 50*time.Millisecond)
	fill(w)
	ended(t, w.flushed)
	require.ErrorIs(t, w.lost(), errSlowWire)
	_, err := w.Write([]byte("x"))
	require.Error(t, err)
	require.NoError(t, w.awaitRoom(t.Context()), "nobody waits for a wire that has ended")
}

func TestWire_HasPatienceWithAPeerThatSaysItIsBlocked(t *testing.T) {
	t.Parallel()
	w, peer := pair(t, 100*time.Millisecond)
	w.wait(true)
	fill(w)
	select {
	case <-w.flushed:
		require.Fail(t, "it has given up")
	case <-time.After(500 * time.Millisecond): // nothing may happen for five times its timeout
	}
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	w.wait(false)
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.out) == 0
	}, testPatience, time.Millisecond)
	require.NoError(t, w.lost())
}

func TestWire_GivesRoomWhenThePeerReads(t *testing.T) {
	t.Parallel()
	w, peer := pair(t, testPatience)
	require.NoError(t, w.awaitRoom(t.Context()))
	fill(w)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.awaitRoom(ctx), context.DeadlineExceeded)
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	require.NoError(t, w.awaitRoom(t.Context()))
}

func TestWire_KillFreesReadersAndKeepsTheFirstReason(t *testing.T) {
	t.Parallel()
	w, _ := pair(t, testPatience)
	read := make(chan error, 1)
	go func() {
		_, err := w.Read(make([]byte, 1))
		read <- err
	}()
	first := errors.New("first")
	w.kill(first)
	require.Error(t, <-read)
	ended(t, w.flushed)
	require.ErrorIs(t, w.lost(), first)
}

func TestWire_CloseDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w, _ := pair(t, testPatience)
	fill(w)
	start := time.Now()
	require.NoError(t, w.Close())
	ended(t, w.flushed)
	require.Less(t, time.Since(start), 5*wireLinger)
}

// sentHeaderFrame returns the size of the content header frame that amqp091 writes for m.
func sentHeaderFrame(t *testing.T, m amqp.Publishing) int {
	t.Helper()
	here, there := net.Pipe()
	sizes := make(chan int, 1)
	go serveFrames(there, sizes)
	conn, err := amqp.Open(here, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{}}, Vhost: "/", Locale: "en_US"})
	require.NoError(t, err)
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, ch.Publish("e", "k", false, false, m))
	size := <-sizes
	require.NoError(t, conn.Close())
	return size
}

// serveFrames plays a broker that takes one message: it answers each method with what amqp091 waits for.
func serveFrames(conn net.Conn, headerFrames chan<- int) {
	defer conn.Close()
	answers := map[[4]byte][]byte{
		{0, 10, 0, 11}: {0, 10, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0}, // start-ok: tune, no limits
		{0, 10, 0, 40}: {0, 10, 0, 41, 0},                      // open: open-ok
		{0, 20, 0, 10}: {0, 20, 0, 11, 0, 0, 0, 0},             // channel.open: open-ok
		{0, 10, 0, 50}: {0, 10, 0, 51},                         // close: close-ok
	}
	send := func(channel byte, payload []byte) {
		frame := append([]byte{1, 0, channel, 0, 0, 0, byte(len(payload))}, payload...)
		_, _ = conn.Write(append(frame, 0xCE))
	}
	if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil {
		return
	}
	// connection.start: version 0-9, no properties, PLAIN, en_US
	send(0, append([]byte{0, 10, 0, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5}, "PLAIN\x00\x00\x00\x05en_US"...))
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		payload := make([]byte, int(head[3])<<24|int(head[4])<<16|int(head[5])<<8|int(head[6])+1)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return
		}
		switch head[0] {
		case 1:
			if answer, ok := answers[[4]byte(payload)]; ok {
				send(head[2], answer)
			}
		case 2:
			headerFrames <- len(head) + len(payload)
		}
	}
}
