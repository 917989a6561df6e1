package api

import (
	"time"

	"github.com/duebox/duebox/outbox"
)

const (
	// Workers say something every few seconds: readings that are nearer to each other would show that rhythm.
	rateEvery = 10 * time.Second
	rateSpan  = 10 * time.Minute
	// Readings are made while somebody looks. After a longer pause a line over it would say something of a time of which nothing is known.
	ratePause = 30 * time.Second
)

// rates are what workers have published and finished in each second, made from the totals that they say, reading by reading. The zero
// value has none yet.
type rates struct {
	at     time.Time // of the reading before
	before map[string]outbox.Peer
	known  []rateJSON // the last ten minutes, the oldest first
}

// add takes a reading in and returns what is known then. A worker that has come, gone or started again since the reading before counts
// from the next one on.
func (r *rates) add(v outbox.Overview) []rateJSON {
	if !r.at.IsZero() && v.Now.Sub(r.at) < rateEvery && !v.Now.Before(r.at) {
		return r.known
	}
	if v.Now.Sub(r.at) > ratePause {
		*r = rates{}
	}
	now := rateJSON{At: stamp(v.Now)}
	peers := make(map[string]outbox.Peer, len(v.Workers))
	for _, w := range v.Workers {
		peers[w.Owner] = w
		b, known := r.before[w.Owner]
		took := w.SeenAt.Sub(b.SeenAt).Seconds()
		if known && took > 0 && w.Published >= b.Published && w.Finished >= b.Finished {
			now.PublishedPerS += float64(w.Published-b.Published) / took
			now.FinishedPerS += float64(w.Finished-b.Finished) / took
		}
	}
	known := []rateJSON{} // a new one: answers that are being written have the old
	for _, k := range append(r.known, now) {
		if at := time.Time(k.At); !at.After(v.Now) && v.Now.Sub(at) < rateSpan && r.before != nil {
			known = append(known, k)
		}
	}
	r.at, r.before, r.known = v.Now, peers, known
	return known
}
