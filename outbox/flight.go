package outbox

import (
	"sync"
	"time"
)

// flight remembers the rows that this relay has taken and not yet settled, by id and revision, so that reading the same
// range again publishes nothing twice. It is bounded in rows and bytes.
//
// A row that was settled while a scan was under way may still be in what that scan returns; it is therefore forgotten only
// when the next scan begins.
type flight struct {
	maxRows, maxBytes int

	mu      sync.Mutex
	rows    map[int64]entry
	bytes   int
	byShard [shards]int
	parked  int
	ended   []rowVersion // to be forgotten when the next scan begins
	free    chan struct{}
}

type entry struct {
	revision int64
	ended    bool
}

type rowVersion struct{ id, revision int64 }

// item is a taken row.
type item struct {
	pub       Publication
	revision  int64
	shard     int
	look      int   // of the scan that has read it
	available int64 // microseconds since 1970
	held      bool
	takenAt   time.Time // when it may be handed over
	broken    error     // why the row cannot be published at all
	bytes     int
	parked    bool // confirmed, and not counted any more
}

func newFlight(maxRows, maxBytes int) *flight {
	return &flight{maxRows: maxRows, maxBytes: maxBytes, rows: map[int64]entry{}, free: make(chan struct{}, 1)}
}

// beginScan forgets what ended before the scan that follows.
func (f *flight) beginScan() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range f.ended {
		if e, ok := f.rows[it.id]; ok && e.ended && e.revision == it.revision {
			delete(f.rows, it.id)
		}
	}
	f.ended = f.ended[:0]
}

// add takes a row unless this revision of it is in flight already.
func (f *flight) add(it item) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.rows[it.pub.ID]; ok && e.revision >= it.revision {
		return false
	}
	f.rows[it.pub.ID] = entry{revision: it.revision}
	f.bytes += it.bytes
	f.byShard[it.shard]++
	return true
}

// end lets a row go: it was settled, or it may be taken again by a later scan.
func (f *flight) end(items ...item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range items {
		if it.parked {
			f.parked--
		} else {
			f.bytes -= it.bytes
			f.byShard[it.shard]--
		}
		if e, ok := f.rows[it.pub.ID]; ok && e.revision == it.revision {
			f.rows[it.pub.ID] = entry{revision: it.revision, ended: true}
			f.ended = append(f.ended, rowVersion{it.pub.ID, it.revision})
		}
	}
	select {
	case f.free <- struct{}{}:
	default:
	}
}

// park lets go the room of a row that is confirmed and cannot be settled for now, but not the memory of it. The number of such rows is
// bounded as well; one that exceeds it keeps its room.
func (f *flight) park(it *item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if it.parked || f.parked >= parkedMost*f.maxRows {
		return
	}
	it.parked = true
	it.pub.Payload, it.pub.Headers = nil, nil
	f.parked++
	f.bytes -= it.bytes
	f.byShard[it.shard]--
	select {
	case f.free <- struct{}{}:
	default:
	}
}

// parkedMost is how many times the room of a relay may be parked.
const parkedMost = 4

// parkedShare is how many times it is.
func (f *flight) parkedShare() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parked / f.maxRows
}

// room returns how many more rows and bytes may be taken.
func (f *flight) room() (rows, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.maxRows - f.total(), f.maxBytes - f.bytes
}

func (f *flight) ofShard(shard int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byShard[shard]
}

func (f *flight) total() int {
	n := 0
	for _, c := range f.byShard {
		n += c
	}
	return n
}
