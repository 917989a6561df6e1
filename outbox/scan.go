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
// be taken at once. First comes what is due, up to the horizon, then what is ahead by a delay of the publisher. What was taken before
// an error is returned with it.
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
	take := func(s *scanner, w window) error {
		read, some, err := r.read(ctx, s, mine, w, now)
		if err != nil {
			return fmt.Errorf("take work: %w", err)
		}
		local := time.Now()
		for _, it := range read {
			bytes -= it.bytes
			it.pub.FireAt = r.store.clock.local(fromMicros(it.available))
			it.takenAt = reach.takenAt(&it, local)
			if it.takenAt.Sub(local) <= 2*heldAhead && r.flight.add(it) {
				taken = append(taken, it)
			}
		}
		more = more || some
		return nil
	}
	if err := take(&r.scanner, window{ahead: r.horizon(reach), rows: rows, bytes: bytes}); err != nil || reach.UpTo > 0 {
		return taken, more, err
	}
	for _, delay := range reach.Delays {
		// What waits to be handed over ahead must leave room for what is due.
		room := r.cfg.MaxInFlight/2 - waiting - len(taken)
		if room <= 0 || bytes <= 0 {
			break
		}
		s := r.delayed[delay]
		if s == nil {
			s = &scanner{}
			r.delayed[delay] = s
		}
		w := delayWindow(now, delay)
		w.rows, w.bytes = room, bytes
		if err := take(s, w); err != nil {
			return taken, more, err
		}
	}
	return taken, more, nil
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

// read reads on in a window, at the database's time now. Some says that a shard may have more.
func (r *Relay) read(ctx context.Context, s *scanner, mine []int, w window, now time.Time) (read []item, some bool, err error) {
	// Rows as large as those of the scan before must fit as well; readWork stops where they do not.
	perShard := max(1, min(scanRows, w.rows, w.bytes/max(1, s.rowBytes))/len(mine))
	from := s.begin(time.Now(), mine)
	for shard := range from {
		if from[shard].available < w.from {
			from[shard] = position{available: w.from}
		}
	}
	query, args := takeQuery(mine, from, w.ahead, perShard)
	read, some, err = r.store.readWork(ctx, w.bytes, query, args)
	if err != nil {
		return nil, false, err
	}
	s.end(read, now)
	var perShardRead [shards]int
	for _, it := range read {
		if perShardRead[it.shard]++; perShardRead[it.shard] == perShard {
			some = true
		}
	}
	return read, some, nil
}

// takeQuery reads each shard in index order: one range of the index `due` per branch, no sort, no lock.
func takeQuery(mine []int, from [shards]position, horizon time.Duration, perShard int) (string, []any) {
	const branch = `(SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now_us,
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
		q    strings.Builder
		args = make([]any, 0, 7*len(mine))
	)
	for i, shard := range mine {
		if i > 0 {
			q.WriteString(" UNION ALL ")
		}
		q.WriteString(branch)
		p := from[shard]
		at := fromMicros(p.available).Format(sqlTime)
		args = append(args, shard, horizon.Microseconds(), at, at, p.id, heldAhead.Microseconds(), perShard)
	}
	return q.String(), args
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
		err := rows.Scan(&now, &it.pub.ID, &it.shard, &it.pub.Topic, &it.pub.Key, &it.pub.Generation, &it.revision,
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
