package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// scanner is how far the reading of scheduled rows has come. Reading goes on after the last (available_at, id) read in each
// shard, and from the front again at least every second, because ids and times do not commit in order.
//
// The front is a low-water mark rather than the beginning of time: rows that were settled leave entries in the index
// until the server purges them, and walking over those each second would cost more the longer purge lags. Whatever becomes
// scheduled is available no earlier than its statement's time, so only a transaction that was open for longer than openFor
// can put a row behind the mark; a scan from the beginning of time, once in fullEvery, finds those.
type scanner struct {
	mu       sync.Mutex
	shards   []int // that the last scan read
	at       [shards]position
	front    time.Time // when the last scan from the low-water mark began
	full     time.Time // when the last scan from the beginning of time began
	lowWater int64     // microseconds since 1970; scans since the last front saw nothing before it
	lowered  int64     // least available_at that was let go unsettled since; noWater: none
	rowBytes int       // mean of the last scan that read any
}

type position struct{ available, id int64 }

const (
	fullEvery = 30 * time.Second
	openFor   = 30 * time.Second
	noWater   = int64(1) << 62
	// How far ahead rows are read that are not handed over yet: longer than the pause between two scans from the front.
	heldAhead = 2 * time.Second
)

// lower makes the next scan from the front see a row that was let go without being settled.
func (s *scanner) lower(it item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowered = min(s.lowered, it.available)
}

// begin returns where to read from in each shard.
func (s *scanner) begin(now time.Time, mine []int) [shards]position {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now.Sub(s.full) >= fullEvery:
		s.at = [shards]position{}
		s.full, s.front, s.lowWater, s.lowered = now, now, noWater, noWater
	case now.Sub(s.front) >= frontEvery:
		mark := min(s.lowWater, s.lowered)
		for i := range s.at {
			if s.at[i].available >= mark {
				s.at[i] = position{available: mark}
			}
		}
		s.front, s.lowWater, s.lowered = now, noWater, noWater
	}
	for _, shard := range mine {
		if !slices.Contains(s.shards, shard) { // newly leased: another relay knew how far it had come
			s.at[shard] = position{}
		}
	}
	s.shards = mine
	return s.at
}

// end notes the last row read from each shard, and the database's time of the scan.
func (s *scanner) end(items []item, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowWater = min(s.lowWater, now.Add(-openFor).UnixMicro())
	bytes := 0
	for _, it := range items {
		s.at[it.shard] = position{it.available, it.pub.ID}
		s.lowWater = min(s.lowWater, it.available)
		bytes += it.bytes
	}
	if len(items) > 0 {
		s.rowBytes = bytes / len(items)
	}
}

// scan takes the next rows of the leased shards, in the order in which they should fire, and tells whether there may be others to
// be taken at once. First comes what is due, up to the horizon, then what is ahead by a delay of the publisher. It is one statement, however
// many delays there are: that is what a relay without work costs.
func (r *Relay) scan(ctx context.Context, waiting int) (taken []item, more bool, err error) {
	mine := r.leases.takeable(time.Now())
	rows, bytes := r.flight.room()
	if len(mine) == 0 || rows < r.cfg.MaxInFlight/4 || bytes <= 0 {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	reach := r.cfg.Reach()
	r.flight.beginScan()
	now, err := r.store.Now(ctx) // before the rows: the scanner must not think that it has seen what came later
	if err != nil {
		return nil, false, err
	}
	read, more, err := r.read(ctx, r.looks(reach, now, waiting, rows, bytes), mine, bytes, now)
	if err != nil {
		return nil, false, fmt.Errorf("take work: %w", err)
	}
	local := time.Now()
	for _, it := range read {
		it.pub.FireAt = r.store.clock.local(fromMicros(it.available))
		it.takenAt = reach.takenAt(&it, local)
		if it.takenAt.Sub(local) <= 2*heldAhead && r.flight.add(it) {
			taken = append(taken, it)
		}
	}
	return taken, more, nil
}

// look is a window to be read in a scan, and what remembers how far its reading has come.
type look struct {
	*scanner
	window
}

// looks says what to read with room for so many rows and bytes, while so many taken rows wait for their time.
func (r *Relay) looks(reach Reach, now time.Time, waiting, rows, bytes int) []look {
	due := look{&r.scanner, window{ahead: r.horizon(reach), rows: rows, bytes: bytes}}
	if reach.UpTo > 0 || len(reach.Delays) == 0 {
		return []look{due}
	}
	// What waits to be handed over ahead must leave room for what is due.
	due.rows = min(scanRows, (rows+1)/2)
	room := min(r.cfg.MaxInFlight/2-waiting, rows-due.rows) / len(reach.Delays)
	if room <= 0 {
		return []look{due}
	}
	due.bytes /= 1 + len(reach.Delays)
	looks := []look{due}
	for _, delay := range reach.Delays {
		s := r.delayed[delay]
		if s == nil {
			s = &scanner{}
			r.delayed[delay] = s
		}
		w := delayWindow(now, delay)
		w.rows, w.bytes = room, due.bytes
		looks = append(looks, look{s, w})
	}
	return looks
}

// horizon is how far ahead the first reading of a scan goes.
func (r *Relay) horizon(reach Reach) time.Duration {
	if reach.UpTo > 0 {
		return min(r.cfg.Horizon, reach.UpTo)
	}
	return heldAhead
}

// window is a range of times to read from.
type window struct {
	from        int64         // microseconds since 1970; what is available before is passed over
	ahead       time.Duration // how far it reaches from now on
	rows, bytes int           // the most to be read
}

// delayWindow has what should be handed over for a delay, at the database's time now and soon after. What has missed that is left to the
// next shorter delay, or to its time.
func delayWindow(now time.Time, delay time.Duration) window {
	return window{from: now.Add(delay - delayLag).UnixMicro(), ahead: delay + heldAhead}
}

// read reads on in all windows by one statement, up to room bytes, at the database's time now. Some says that a shard may have more.
func (r *Relay) read(ctx context.Context, looks []look, mine []int, room int, now time.Time) (read []item, some bool, err error) {
	spans := make([]span, len(looks))
	for i, l := range looks {
		// Rows as large as those of the scan before must fit as well; readWork stops where they do not.
		perShard := max(1, min(scanRows, l.rows, l.bytes/max(1, l.rowBytes))/len(mine))
		spans[i] = span{l.begin(time.Now(), mine), l.ahead, perShard}
		for shard, at := range spans[i].from {
			if at.available < l.from {
				spans[i].from[shard] = position{available: l.from}
			}
		}
	}
	query, args := takeQuery(mine, spans...)
	read, some, err = r.store.readWork(ctx, room, query, args)
	if err != nil {
		return nil, false, err
	}
	for i, l := range looks {
		var of []item
		var ofShard [shards]int
		for _, it := range read {
			if it.look != i {
				continue
			}
			of = append(of, it)
			if ofShard[it.shard]++; ofShard[it.shard] == spans[i].perShard {
				some = true
			}
		}
		l.end(of, now)
	}
	return read, some, nil
}

// span is how far a statement reads on from where, and how many rows of each shard.
type span struct {
	from     [shards]position
	ahead    time.Duration
	perShard int
}

// takeQuery reads each shard in index order, in one span after the other: one range of the index `due` per branch, no sort, no lock.
func takeQuery(mine []int, spans ...span) (string, []any) {
	const branch = `(SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now_us, ? AS span,
			id, shard, topic, COALESCE(message_key, '') AS message_key, generation, revision, held, attempts,
			TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', due_at) AS due,
			TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', available_at) AS available,
			content_type, headers, payload
		FROM outbox_messages FORCE INDEX (due)
		WHERE state = 'scheduled' AND shard = ?
			AND available_at <= UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
			AND (available_at > ? OR (available_at = ? AND id > ?))
			AND (held = FALSE OR available_at <= UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
		ORDER BY available_at, id LIMIT ?)`
	var (
		branches = make([]string, 0, len(spans)*len(mine))
		args     = make([]any, 0, 8*len(spans)*len(mine))
	)
	for i, s := range spans {
		for _, shard := range mine {
			p := s.from[shard]
			at := fromMicros(p.available).Format(sqlTime)
			branches = append(branches, branch)
			args = append(args, i, shard, s.ahead.Microseconds(), at, at, p.id, heldAhead.Microseconds(), s.perShard)
		}
	}
	return strings.Join(branches, " UNION ALL "), args
}

// readWork reads rows until room bytes are used up; cut says that it stopped before the last.
func (s *Store) readWork(ctx context.Context, room int, query string, args []any) (items []item, cut bool, err error) {
	ledger, err := s.StoreID(ctx)
	if err != nil {
		return nil, false, err
	}
	items, err = queryAll(ctx, s.sql, func(rows *sql.Rows, it *item) error {
		if cut = room <= 0; cut {
			return errEnough
		}
		var (
			headers  []byte
			now, due int64
		)
		err := rows.Scan(&now, &it.look, &it.pub.ID, &it.shard, &it.pub.Topic, &it.pub.Key, &it.pub.Generation, &it.revision,
			&it.held, &it.pub.Attempt, &due, &it.available, &it.pub.ContentType, &headers, &it.pub.Payload)
		if err != nil {
			return err
		}
		s.clock.observe(time.Now(), fromMicros(now))
		it.pub.Store, it.pub.Shard, it.pub.DueAt = ledger, it.shard, fromMicros(due)
		if it.pub.Headers, err = decodeHeaders(headers); err != nil {
			it.broken = fmt.Errorf("%w: %w", ErrUnpublishable, err)
		}
		it.bytes = len(it.pub.Payload) + len(headers)
		room -= it.bytes
		return nil
	}, query, args...)
	return items, cut, err
}
