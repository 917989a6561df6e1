package rabbitmq

import (
	"sync"
	"sync/atomic"
)

// maxBlamed is how many messages may each have ended a channel alone before an exchange is taken for broken.
const maxBlamed = 5

// blame tells a message that cannot be published from an exchange that takes none. A broken exchange ends the channel for every
// message; if each of them spent an attempt for it, an outage would turn the whole ledger dead.
type blame struct {
	some   atomic.Bool // whether anything is blamed
	mu     sync.Mutex
	blamed map[string]map[int64]struct{} // ids, by exchange, since its last confirm
}

// add blames a message. It returns true when so many are blamed that the exchange must be broken.
func (b *blame) add(exchange string, id int64) (broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blamed == nil {
		b.blamed = map[string]map[int64]struct{}{}
	}
	ids := b.blamed[exchange]
	if ids == nil {
		ids = map[int64]struct{}{}
		b.blamed[exchange] = ids
	}
	if len(ids) < maxBlamed {
		ids[id] = struct{}{}
	}
	b.some.Store(true)
	return len(ids) == maxBlamed
}

// confirmed notes that the exchange takes messages.
func (b *blame) confirmed(exchange string) {
	if !b.some.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.blamed, exchange)
	b.some.Store(len(b.blamed) > 0)
}
