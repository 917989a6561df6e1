package devenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
func takePorts(n int) (*ports, error) {
	for _, block := range rand.Perm((lastPort - firstPort) / blockSize) {
		base := firstPort + block*blockSize
		// An abstract socket is a lock that leaves no file and ends with
		// its process.
		lock, err := net.Listen("unix", fmt.Sprintf("@duebox-devenv-%d", base))
		if err != nil {
			continue
		}
		p := &ports{base: base, lock: lock}
		if p.free(n) {
			return p, nil
		}
		p.release()
	}
	return nil, errNoPorts
}

// free tells whether the first n ports can be listened on.
func (p *ports) free(n int) bool {
	for port := p.base; port < p.base+n; port++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func (p *ports) release() { _ = p.lock.Close() }
