package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"time"
)

const (
	// How long the settling of a message that was due when it was published waits for its effect, which
	// makes settling it unnecessary.
	settleWait = 200 * time.Millisecond
	// The most that one statement settles: a few publishes' worth, when settling lags behind.
	settleRows = 512
	// The pause before a row that somebody holds locked is tried again.
	lockedPause = time.Second
	// How long after a wait for a locked row the settler leaves out locked rows from the start.
	contendedFor = 30 * time.Second
	// After how long the settler's connection is not trusted any more: servers end idle ones.
	settleIdle = 30 * time.Second
)

// settler marks confirmed rows published, and those of untracked messages done.
type settler struct {
	r       *Relay
	conn    *sql.Conn // of its own: its lock wait is 1 s
	used    time.Time // conn, last
	waited  time.Time // when a locked row has last made it wait
	waiting []later   // in the order of their time
}

type later struct {
	at   time.Time
	rows []confirmation
	ask  bool // some may have taken effect meanwhile
}

func (c confirmation) key() int64 { return c.pub.ID }

// settle runs until confirmed is closed and what came through it is settled, or ctx ends: what is then left is published
// again, and the guard drops it.
func (r *Relay) settle(ctx context.Context, confirmed <-chan []confirmation) {
	s := &settler{r: r}
	defer s.discard()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for confirmed != nil || len(s.waiting) > 0 {
		if len(s.waiting) > 0 {
			timer.Reset(max(0, time.Until(s.waiting[0].at)))
		}
		select {
		case rows, ok := <-confirmed:
			if !ok {
				confirmed = nil
				break
			}
			rows = gather(rows, confirmed)
			var due, ahead []confirmation
			for _, c := range rows {
				if c.due {
					due = append(due, c)
				} else {
					ahead = append(ahead, c)
				}
			}
			s.settle(ctx, ahead)
			s.put(due)
			s.wait(settleWait, due, true)
		case <-timer.C:
			next := s.waiting[0]
			s.waiting = s.waiting[1:]
			if next.ask {
				next.rows = s.unfinished(ctx, next.rows)
			}
			s.settle(ctx, next.rows)
		}
		if confirmed == nil && ctx.Err() != nil {
			return
		}
	}
}

// gather adds what is confirmed by now, up to about settleRows: larger statements cost less a row.
func gather(rows []confirmation, confirmed <-chan []confirmation) []confirmation {
	for len(rows) < settleRows {
		select {
		case more := <-confirmed:
			if more == nil { // closed, which the caller finds out next
				return rows
			}
			rows = append(rows, more...)
		default:
			return rows
		}
	}
	return rows
}

func (s *settler) wait(pause time.Duration, rows []confirmation, ask bool) {
	if len(rows) == 0 {
		return
	}
	s.waiting = append(s.waiting, later{time.Now().Add(pause), rows, ask})
	slices.SortStableFunc(s.waiting, func(a, b later) int { return a.at.Compare(b.at) })
}

// settle writes rows by primary key, ids ascending, those of one epoch and revision in one statement.
func (s *settler) settle(ctx context.Context, rows []confirmation) {
	slices.SortFunc(rows, func(a, b confirmation) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.revision, b.revision), cmp.Compare(a.pub.ID, b.pub.ID))
	})
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && n < settleRows && rows[n].epoch == rows[0].epoch && rows[n].revision == rows[0].revision {
			n++
		}
		s.write(ctx, rows[:n])
		rows = rows[n:]
	}
}

// write settles rows of one epoch and revision. Rows that another transaction holds locked must not hold up the others: an effect
// that runs, or a caller that has canceled many. So once a row has made it wait, and for rows that may be in their effect, it
// settles what is not locked and comes back for the rest.
func (s *settler) write(ctx context.Context, rows []confirmation) {
	for {
		settle := s.updateAll
		if rows[0].due || time.Since(s.waited) < contendedFor {
			settle = s.updateUnlocked
		}
		settled, n, err := settle(ctx, rows)
		switch {
		case err == nil:
			s.r.store.cfg.Observer.settled(int(n), len(settled)-int(n))
			s.land(settled, int(n) < len(settled))
			s.park(without(rows, settled, confirmation.key))
			return
		case IsRetryable(err):
			s.waited = time.Now()
		default:
			s.discard()
			if ctx.Err() == nil {
				s.r.log.WarnContext(ctx, "published messages not settled", "rows", len(rows), "error", err)
			}
			if sleep(ctx, errorPause) != nil {
				s.land(rows, true)
				return
			}
		}
	}
}

// park puts rows off that somebody holds locked. They take no room any more, so that the relay goes on with others, unless there
// are very many: each scan from the front reads them again.
func (s *settler) park(rows []confirmation) {
	s.put(rows)
	s.wait(lockedPause*time.Duration(1+s.r.flight.parkedShare()), rows, true)
}

// put has rows that wait take no room.
func (s *settler) put(rows []confirmation) {
	for i := range rows {
		s.r.flight.park(&rows[i].item)
	}
}

// land ends the rows' flight. If some may still be scheduled as they were (a newer broker epoch was found), the next scan from
// the front takes those again.
func (s *settler) land(rows []confirmation, again bool) {
	items := make([]item, len(rows))
	for i, c := range rows {
		items[i] = c.item
	}
	if again {
		s.r.letGo(items...)
		return
	}
	s.r.flight.end(items...)
}

// updateAll settles rows, and waits up to a second for one that is locked.
func (s *settler) updateAll(ctx context.Context, rows []confirmation) (settled []confirmation, n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		return nil, 0, err
	}
	n, err = s.update(ctx, s.conn, rows)
	return rows, n, err
}

// update settles all of rows and returns how many were still as they were taken. An untracked message ends here, as a tracked one does
// in the guard.
func (s *settler) update(ctx context.Context, c conn, rows []confirmation) (int64, error) {
	args := make([]any, 0, len(rows)+5)
	args = append(args, rows[0].epoch, s.r.store.cfg.Retention.Microseconds(), s.r.cfg.Grace.Microseconds())
	for _, c := range rows {
		args = append(args, c.pub.ID)
	}
	args = append(args, rows[0].revision, rows[0].epoch)
	// index: primary. A confirm of a broker life that has ended says nothing any more.
	return execCount(ctx, c, `UPDATE outbox_messages SET
			state = IF(untracked, 'done', 'published'), live_key = IF(untracked, NULL, live_key),
			finished_at = IF(untracked, UTC_TIMESTAMP(6), NULL),
			published_at = UTC_TIMESTAMP(6), publishes = publishes + 1, broker_epoch = ?, held = FALSE,
			available_at = IF(untracked, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, GREATEST(available_at, UTC_TIMESTAMP(6)) + INTERVAL ? MICROSECOND)
		WHERE id IN (`+marks(len(rows))+`) AND revision = ? AND state = 'scheduled'
			AND (SELECT broker_epoch FROM outbox_meta WHERE id = 1) <= ?`, args...)
}

// updateUnlocked settles those of rows that nobody holds locked and that are still scheduled, and returns them.
func (s *settler) updateUnlocked(ctx context.Context, rows []confirmation) (settled []confirmation, n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		return nil, 0, err
	}
	tx, err := s.conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, 0, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after Commit
	found, err := s.scheduled(ctx, tx, rows, " FOR UPDATE SKIP LOCKED")
	if err != nil {
		return nil, 0, err
	}
	for _, c := range rows {
		if found[c.pub.ID] == c.revision {
			settled = append(settled, c)
		}
	}
	if len(settled) == 0 {
		return nil, 0, nil
	}
	if n, err = s.update(ctx, tx, settled); err != nil {
		return nil, 0, err
	}
	return settled, n, tx.Commit()
}

// unfinished leaves out the rows that have moved on. When it cannot tell, it leaves out none.
func (s *settler) unfinished(ctx context.Context, rows []confirmation) []confirmation {
	left, err := s.askScheduled(ctx, rows)
	if err != nil {
		return rows
	}
	var rest, gone []confirmation
	for _, c := range rows {
		if left[c.pub.ID] == c.revision {
			rest = append(rest, c)
		} else {
			gone = append(gone, c)
		}
	}
	s.land(gone, false)
	return rest
}

func (s *settler) askScheduled(ctx context.Context, rows []confirmation) (map[int64]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s.scheduled(ctx, s.conn, rows, "")
}

// scheduled returns the revisions of those rows that are scheduled, by id.
func (s *settler) scheduled(ctx context.Context, c conn, rows []confirmation, lock string) (map[int64]int64, error) {
	ids := make([]any, len(rows))
	for i, c := range rows {
		ids[i] = c.pub.ID
	}
	// index: primary
	found, err := queryAll(ctx, c, func(rows *sql.Rows, row *rowVersion) error { return rows.Scan(&row.id, &row.revision) },
		`SELECT id, revision FROM outbox_messages WHERE id IN (`+marks(len(ids))+`) AND state = 'scheduled'`+lock, ids...)
	revisions := make(map[int64]int64, len(found))
	for _, row := range found {
		revisions[row.id] = row.revision
	}
	return revisions, err
}

// open makes the settler's own connection, unless it has one.
func (s *settler) open(ctx context.Context) error {
	if time.Since(s.used) > settleIdle {
		s.discard()
	}
	s.used = time.Now()
	if s.conn != nil {
		return nil
	}
	conn, err := s.r.store.sql.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open the settling connection: %w", err)
	}
	s.conn = conn
	if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
		s.discard()
		return fmt.Errorf("set up the settling connection: %w", err)
	}
	return nil
}

// discard closes the connection for good: its lock wait must not reach the pool's other users.
func (s *settler) discard() {
	if s.conn == nil {
		return
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
	s.conn = nil
}
