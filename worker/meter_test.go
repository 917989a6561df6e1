package worker_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// meter stands between workers and a broker and reads what they say to each other (AMQP 0-9-1, section 4.2): which deliveries
// of a channel are not acknowledged yet.
type meter struct {
	listener net.Listener
	target   string
	serving  sync.WaitGroup

	mu        sync.Mutex
	conns     map[net.Conn]bool
	delivered int
	acked     int
	worst     int      // unacknowledged deliveries of one channel, at most
	wrong     []string // acknowledgements of what this channel was not given
}

// metered returns a meter in front of the broker at target, and the URL that goes through it.
func metered(t *testing.T, target string) (*meter, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(target)
	require.NoError(t, err)
	m := &meter{listener: l, target: u.Host, conns: map[net.Conn]bool{}}
	m.serving.Go(m.serve)
	t.Cleanup(func() {
		_ = l.Close()
		m.cut()
		m.serving.Wait()
	})
	u.Host = l.Addr().String()
	return m, u.String()
}

func (m *meter) serve() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", m.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		m.mu.Lock()
		m.conns[client] = true
		m.mu.Unlock()
		open := map[uint16]map[uint64]bool{} // delivery tags that are not acknowledged, by channel
		m.serving.Go(func() { m.pass(client, broker, 0, func(ch uint16, method []byte) { m.fromBroker(open, ch, method) }) })
		m.serving.Go(func() { m.pass(broker, client, 8, func(ch uint16, method []byte) { m.fromClient(open, ch, method) }) })
	}
}

// cut ends all connections.
func (m *meter) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		_ = c.Close()
		delete(m.conns, c)
	}
}

// pass copies frames; those that are methods are shown to see first.
func (m *meter) pass(to, from net.Conn, greeting int, see func(channel uint16, method []byte)) {
	defer to.Close()
	defer from.Close()
	in, out := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(to, 64<<10)
	if _, err := io.CopyN(out, in, int64(greeting)); err != nil {
		return
	}
	for {
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
		const header = 7 // type, channel, size; a byte ends the frame
		start, err := in.Peek(header)
		if err != nil {
			return
		}
		frame := make([]byte, header+binary.BigEndian.Uint32(start[3:])+1)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		if frame[0] == 1 {
			m.mu.Lock()
			see(binary.BigEndian.Uint16(frame[1:]), frame[header:])
			m.mu.Unlock()
		}
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
}

const (
	channelOpen  = 20<<16 | 10
	basicDeliver = 60<<16 | 60
	basicAck     = 60<<16 | 80
	basicReject  = 60<<16 | 90
)

func (m *meter) fromBroker(open map[uint16]map[uint64]bool, channel uint16, method []byte) {
	if binary.BigEndian.Uint32(method) != basicDeliver {
		return
	}
	args := method[5+int(method[4]):] // after the consumer's tag
	open[channel][binary.BigEndian.Uint64(args)] = true
	m.delivered++
	m.worst = max(m.worst, len(open[channel]))
}

func (m *meter) fromClient(open map[uint16]map[uint64]bool, channel uint16, method []byte) {
	switch binary.BigEndian.Uint32(method) {
	case channelOpen:
		open[channel] = map[uint64]bool{}
	case basicAck, basicReject:
		tag := binary.BigEndian.Uint64(method[4:])
		if !open[channel][tag] {
			m.wrong = append(m.wrong, fmt.Sprintf("tag %d on channel %d", tag, channel))
		}
		delete(open[channel], tag)
		m.acked++
	}
}

// read returns how many deliveries there were, how many were answered, and how many of a channel were open at most.
func (m *meter) read() (delivered, acked, worst int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delivered, m.acked, m.worst
}

// requireRight: nothing was acknowledged that the channel had not been given.
func (m *meter) requireRight(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(t, m.wrong)
}
