package rabbitmq_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// frames stands between the product and a broker and knows AMQP 0-9-1 well enough to lose a consumer: the broker's basic.cancel
// never arrives, and a consumer can be ended behind its client's back.
type frames struct {
	listener net.Listener
	target   string
	serving  sync.WaitGroup

	mu        sync.Mutex
	ends      []net.Conn
	consumers map[string]consuming // the latest of each queue
	swallowed int
}

// consuming is a consumer as its client asked for it.
type consuming struct {
	broker  *lockedWriter
	channel [2]byte
	tag     string
}

// lockedWriter writes whole frames.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// The methods of class basic that count here.
const (
	basicConsume = 20
	basicCancel  = 30
)

func throughFrames(t *testing.T, target string) (f *frames, through string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(target)
	require.NoError(t, err)
	f = &frames{listener: l, target: u.Host, consumers: map[string]consuming{}}
	f.serving.Go(f.serve)
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for _, end := range f.ends {
			_ = end.Close()
		}
		f.mu.Unlock()
		f.serving.Wait()
	})
	u.Host = l.Addr().String()
	return f, u.String()
}

func (f *frames) serve() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", f.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.mu.Lock()
		f.ends = append(f.ends, client, broker)
		f.mu.Unlock()
		f.serving.Go(func() { f.toBroker(broker, client) })
		f.serving.Go(func() { f.toClient(client, broker) })
	}
}

func (f *frames) toBroker(broker, client net.Conn) {
	defer broker.Close()
	defer client.Close()
	in, out := bufio.NewReader(client), &lockedWriter{to: broker}
	greeting := make([]byte, 8)
	if _, err := io.ReadFull(in, greeting); err != nil {
		return
	}
	if _, err := out.Write(greeting); err != nil {
		return
	}
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		if isBasic(frame, basicConsume) {
			queue, rest := shortString(frame[13:]) // type, channel, size, class, method, and a reserved short
			tag, _ := shortString(rest)
			f.mu.Lock()
			f.consumers[queue] = consuming{broker: out, channel: [2]byte(frame[1:3]), tag: tag}
			f.mu.Unlock()
		}
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
}

func (f *frames) toClient(client, broker net.Conn) {
	defer broker.Close()
	defer client.Close()
	in := bufio.NewReader(broker)
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		if isBasic(frame, basicCancel) {
			f.mu.Lock()
			f.swallowed++
			f.mu.Unlock()
			continue
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
}

// readFrame reads one frame, its end mark included.
func readFrame(in io.Reader) ([]byte, error) {
	head := make([]byte, 7)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	frame := make([]byte, 7+int(binary.BigEndian.Uint32(head[3:]))+1)
	copy(frame, head)
	_, err := io.ReadFull(in, frame[7:])
	return frame, err
}

func isBasic(frame []byte, method uint16) bool {
	const methodFrame, basic = 1, 60
	return frame[0] == methodFrame && binary.BigEndian.Uint16(frame[7:]) == basic && binary.BigEndian.Uint16(frame[9:]) == method
}

func shortString(p []byte) (text string, rest []byte) {
	n := 1 + int(p[0])
	return string(p[1:n]), p[n:]
}

// lose ends the queue's consumer at the broker with a basic.cancel that asks for no answer. Its client sees nothing of it.
func (f *frames) lose(t *testing.T, queue string) {
	t.Helper()
	f.mu.Lock()
	c, ok := f.consumers[queue]
	f.mu.Unlock()
	require.True(t, ok, "nobody consumes %s", queue)
	frame := append([]byte{1}, c.channel[:]...)
	frame = binary.BigEndian.AppendUint32(frame, uint32(4+1+len(c.tag)+1))
	frame = append(frame, 0, 60, 0, basicCancel, byte(len(c.tag)))
	frame = append(frame, c.tag...)
	frame = append(frame, 1, 0xce) // no-wait, and the end of a frame
	_, err := c.broker.Write(frame)
	require.NoError(t, err)
}

// tag is that of the queue's latest consumer.
func (f *frames) tag(queue string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.consumers[queue].tag
}

// lost is how many words of the broker about an ended consumer never arrived.
func (f *frames) lost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.swallowed
}
