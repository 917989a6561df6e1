package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// statements notes how long statements take on the connections of a database handle: from when one is sent until the last of its answer has
// been read. So it measures what the library sends without its help.
type statements struct {
	kind func(text []byte) string // empty: not noted

	mu sync.Mutex
	ms map[string][]float64 // by kind
}

// dsn returns a DSN whose connections are noted, and what forgets it.
func (s *statements) dsn(dsn string) (timed string, forget func(), err error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", nil, err
	}
	network, name := cfg.Net, "timed-"+rand.Text()
	cfg.Net = name
	mysql.RegisterDialContext(name, func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &timedConn{Conn: c, notes: s}, nil
	})
	return cfg.FormatDSN(), func() { mysql.DeregisterDialContext(name) }, nil
}

// take returns what has been noted of a kind and forgets it.
func (s *statements) take(kind string) []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := s.ms[kind]
	delete(s.ms, kind)
	return ms
}

// timedConn is read and written by one goroutine at a time, as the driver does. What is noted is the statement before the one that is written.
type timedConn struct {
	net.Conn

	notes      *statements
	kind       string
	sent, read time.Time
}

// packetHead is what precedes the text of a statement: the length, a sequence number, and COM_QUERY.
const packetHead = 5

func (c *timedConn) Write(b []byte) (int, error) {
	c.note()
	if len(b) > packetHead && b[packetHead-1] == 3 {
		c.kind = c.notes.kind(bytes.TrimSpace(b[packetHead:]))
	}
	c.sent, c.read = time.Now(), time.Time{}
	return c.Conn.Write(b)
}

func (c *timedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read = time.Now()
	return n, err
}

// note notes the statement before, if it was answered.
func (c *timedConn) note() {
	kind := c.kind
	c.kind = ""
	if kind == "" || c.read.IsZero() {
		return
	}
	c.notes.mu.Lock()
	defer c.notes.mu.Unlock()
	if c.notes.ms == nil {
		c.notes.ms = map[string][]float64{}
	}
	c.notes.ms[kind] = append(c.notes.ms[kind], float64(c.read.Sub(c.sent))/float64(time.Millisecond))
}
