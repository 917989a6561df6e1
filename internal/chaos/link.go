package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// link is the way from one process to one service, through a proxy of its own.
type link struct {
	proxy *toxiproxy.Proxy
}

func newLink(name, address, upstream string) (*link, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{proxy: toxiproxy.NewProxy(server, name, address, upstream)}
	if err := l.proxy.Start(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	return l, nil
}

func (l *link) address() string { return l.proxy.Listen }
func (l *link) close()          { l.proxy.Stop() }

// cut closes every connection and refuses new ones.
func (l *link) cut() (undo, error) {
	l.proxy.Stop()
	return func(context.Context) error { return l.proxy.Start() }, nil
}

// halfOpen lets connections be, and drops all that is sent.
func (l *link) halfOpen() (undo, error) {
	return l.toxic("timeout", `{"timeout": 0}`, "upstream", "downstream")
}

// slow holds every answer back for two seconds.
func (l *link) slow() (undo, error) {
	return l.toxic("latency", `{"latency": 2000}`, "downstream")
}

// starve takes what is sent and passes nothing on, until it is undone.
func (l *link) starve() (undo, error) {
	return l.toxic("bandwidth", `{"rate": 0}`, "upstream", "downstream")
}

func (l *link) toxic(kind, attributes string, streams ...string) (undo, error) {
	var (
		names []string
		errs  []error
	)
	for _, stream := range streams {
		name := kind + "-" + stream
		_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
			`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, name, kind, stream, attributes)))
		errs = append(errs, err)
		if err == nil {
			names = append(names, name)
		}
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, name := range names {
			errs = append(errs, l.proxy.Toxics.RemoveToxic(ctx, name))
		}
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

// dialUntil is for connections of the suite's own, which must not outlast ctx or half a minute.
func dialUntil(ctx context.Context) func(network, address string) (net.Conn, error) {
	return func(network, address string) (net.Conn, error) {
		const limit = 30 * time.Second
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(limit))
	}
}
