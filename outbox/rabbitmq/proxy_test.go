package rabbitmq_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between the product and a broker and plays a bad network.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	pairs   map[net.Conn]net.Conn // client's end to broker's end
	gate    chan struct{}         // not nil: bytes from the broker wait until it is closed
	inGate  chan struct{}         // not nil: bytes to the broker wait until it is closed
	closing bool
	serving sync.WaitGroup
}

// through returns a proxy in front of the broker at target, and the URL that goes through it.
func through(tb testing.TB, target string) (*proxy, string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return listening(tb, l, target)
}

func listening(tb testing.TB, l net.Listener, target string) (*proxy, string) {
	tb.Helper()
	u, err := url.Parse(target)
	require.NoError(tb, err)
	p := &proxy{listener: l, target: u.Host, pairs: map[net.Conn]net.Conn{}}
	p.serving.Go(p.serve)
	tb.Cleanup(p.close)
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.closing {
			p.mu.Unlock()
			_ = client.Close()
			if err == nil {
				_ = broker.Close()
			}
			continue
		}
		p.pairs[client] = broker
		p.serving.Go(func() { p.copy(broker, client, func() chan struct{} { return p.inGate }) })
		p.serving.Go(func() { p.copy(client, broker, func() chan struct{} { return p.gate }) })
		p.mu.Unlock()
	}
}

func (p *proxy) copy(to, from net.Conn, gate func() chan struct{}) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		g := gate()
		p.mu.Unlock()
		if g != nil {
			<-g
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// mute keeps back what the broker says.
func (p *proxy) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

// stall lets nothing through in either direction; the connections stay open.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
	p.inGate = p.gate
}

// cut ends all connections; what is kept back is lost. New ones are let through.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, broker := range p.pairs {
		_ = client.Close()
		_ = broker.Close()
	}
	clear(p.pairs)
	if p.gate != nil {
		close(p.gate)
	}
	p.gate, p.inGate = nil, nil
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.cut()
	p.serving.Wait()
}
