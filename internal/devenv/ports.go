package devenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports below 32768 never collide with an outgoing connection, which would
// otherwise take a service's port while it is down. Each service takes one
// block, so that all its ports are reserved by one lock.
const (
	firstPort = 20000
	lastPort  = 32000
	blockSize = 16
)

var errNoPorts = errors.New("devenv: no free block of ports between 20000 and 32000")

// ports is a block of blockSize consecutive TCP ports that no other devenv on
// this machine uses, also while nothing listens on them.
type ports struct {
	base int
	lock net.Listener
}

// takePorts reserves a random block whose first n ports are free.
func takePorts(ctx context.Context, n int) (*ports, error) {
	//nolint:gosec // G404: the order is random to spread the load, it guards nothing
	for _, block := range rand.Perm((lastPort - firstPort) / blockSize) {
		base := firstPort + block*blockSize
		// An abstract socket is a lock that leaves no file and ends with
		// its process.
		lock, err := new(net.ListenConfig).Listen(ctx, "unix", fmt.Sprintf("@duebox-devenv-%d", base))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			continue
		}
		p := &ports{base: base, lock: lock}
		if p.free(ctx, n) {
			return p, nil
		}
		p.release()
	}
	return nil, errNoPorts
}

// free tells whether the first n ports can be listened on.
func (p *ports) free(ctx context.Context, n int) bool {
	for port := p.base; port < p.base+n; port++ {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func (p *ports) release() { _ = p.lock.Close() }

// Ports are TCP ports of 127.0.0.1 for programs that listen beside the services. Until Release no service and no other
// Ports of this machine get them, also while nothing listens on them.
type Ports struct{ block *ports }

// TakePorts reserves n ports, at most 16.
func TakePorts(ctx context.Context, n int) (*Ports, error) {
	if n < 1 || n > blockSize {
		return nil, fmt.Errorf("devenv: %d ports are not in 1 to %d", n, blockSize)
	}
	block, err := takePorts(ctx, n)
	if err != nil {
		return nil, err
	}
	return &Ports{block}, nil
}

// Address is host and port of the ith, from 0.
func (p *Ports) Address(i int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.block.base+i))
}

// Release gives them back. They are free at the latest when the program ends.
func (p *Ports) Release() { p.block.release() }
