package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// leases keeps this relay's share of the shards. A relay may publish from a shard while its lease runs; whoever lost one can
// only cause a duplicate, which the guard drops.
type leases struct {
	store     *Store
	owner     string
	life      time.Duration
	heartbeat func() Heartbeat // nil: it says nothing of itself but that it lives

	mu      sync.Mutex
	held    map[int]time.Time // shard -> until when, on the local clock
	leaving map[int]bool      // to be given back once nothing of it is in flight
}

func newLeases(s *Store, owner string, life time.Duration, heartbeat func() Heartbeat) *leases {
	return &leases{store: s, owner: owner, life: life, heartbeat: heartbeat, held: map[int]time.Time{}, leaving: map[int]bool{}}
}

// takeable returns the shards that work may be taken from at now, in ascending order.
func (l *leases) takeable(now time.Time) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []int
	for shard, until := range l.held {
		if now.Before(until) && !l.leaving[shard] {
			out = append(out, shard)
		}
	}
	slices.Sort(out)
	return out
}

// tick says that the relay lives, renews what it holds, gives back what exceeds its fair share and takes free shards up to
// it. The function inFlight tells how many rows of a shard are on their way; it returns how many leases were lost since the last tick.
//
// It is not cut short by the end of ctx: a statement that was canceled on this side could still take a shard on the other,
// after this relay has signed off.
func (l *leases) tick(ctx context.Context, inFlight func(shard int) int) (lost int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.life/2)
	defer cancel()
	asked := time.Now() // before the statement: our lease must not outlive the database's
	if err := l.beat(ctx); err != nil {
		return 0, err
	}
	if lost, err = l.renew(ctx, asked); err != nil {
		return lost, err
	}
	fair, err := l.fairShare(ctx)
	if err != nil {
		return lost, err
	}
	if err := l.shed(ctx, fair, inFlight); err != nil {
		return lost, err
	}
	return lost, l.acquire(ctx, fair)
}

func (l *leases) renew(ctx context.Context, asked time.Time) (lost int, err error) {
	l.mu.Lock()
	had := len(l.held)
	l.mu.Unlock()
	if had == 0 {
		return 0, nil
	}
	// A lease that has run out is not renewed: it may have been taken and given back meanwhile.
	if _, err := l.store.sql.ExecContext(ctx, `UPDATE outbox_shards SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
		WHERE owner = ? AND expires_at > UTC_TIMESTAMP(6)`, l.life.Microseconds(), []byte(l.owner)); err != nil {
		return 0, fmt.Errorf("renew leases: %w", err)
	}
	mine, err := l.mine(ctx)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard := range l.held {
		if slices.Contains(mine, shard) {
			l.held[shard] = asked.Add(l.life)
			continue
		}
		delete(l.held, shard)
		delete(l.leaving, shard)
		lost++
	}
	return lost, nil
}

func (l *leases) fairShare(ctx context.Context) (int, error) {
	var (
		relays int
		now    int64
	)
	if err := l.store.sql.QueryRowContext(ctx, `SELECT COUNT(*), `+micros1970("UTC_TIMESTAMP(6)")+` FROM outbox_relays
		WHERE seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND seen_at < UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`,
		l.life.Microseconds(), l.life.Microseconds()).Scan(&relays, &now); err != nil {
		return 0, fmt.Errorf("count relays: %w", err)
	}
	l.store.clock.observe(time.Now(), fromMicros(now))
	relays = max(1, relays)
	return (shards + relays - 1) / relays, nil
}

// shed stops taking from what exceeds the fair share, and gives a shard back once nothing of it is in flight, so that the
// next relay does not publish it a second time.
func (l *leases) shed(ctx context.Context, fair int, inFlight func(shard int) int) error {
	l.mu.Lock()
	for _, shard := range slices.Sorted(maps.Keys(l.held)) {
		if len(l.held)-len(l.leaving) <= fair {
			break
		}
		l.leaving[shard] = true
	}
	var give []int
	for shard := range l.leaving {
		if inFlight(shard) == 0 {
			give = append(give, shard)
		}
	}
	l.mu.Unlock()
	return l.giveBack(ctx, give)
}

func (l *leases) giveBack(ctx context.Context, give []int) error {
	if len(give) == 0 {
		return nil
	}
	slices.Sort(give)
	if _, err := execCount(ctx, l.store.sql, `UPDATE outbox_shards SET owner = NULL, token = token + 1, expires_at = UTC_TIMESTAMP(6)
		WHERE owner = ? AND shard IN (`+marks(len(give))+`)`, append([]any{[]byte(l.owner)}, anys(give)...)...); err != nil {
		return fmt.Errorf("give back shards: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, shard := range give {
		delete(l.held, shard)
		delete(l.leaving, shard)
	}
	return nil
}

// ghosts is how many lives of its own leases a relay takes another's lease to reach ahead at most. What is further ahead was written before
// the database's clock was set back.
const ghosts = 10

const freeShard = `(expires_at <= UTC_TIMESTAMP(6) OR expires_at > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)`

func (l *leases) acquire(ctx context.Context, fair int) error {
	l.mu.Lock()
	want := fair - len(l.held)
	l.mu.Unlock()
	if want <= 0 {
		return nil
	}
	free, err := l.shards(ctx, `SELECT shard FROM outbox_shards WHERE `+freeShard+` ORDER BY RAND() LIMIT ?`, ghosts*l.life.Microseconds(), want)
	if err != nil || len(free) == 0 {
		return wrap("find free shards", err)
	}
	slices.Sort(free)
	asked := time.Now()
	if _, err := execCount(ctx, l.store.sql, `UPDATE outbox_shards SET owner = ?, token = token + 1,
			expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
		WHERE shard IN (`+marks(len(free))+`) AND `+freeShard,
		append(append([]any{[]byte(l.owner), l.life.Microseconds()}, anys(free)...), ghosts*l.life.Microseconds())...); err != nil {
		return fmt.Errorf("take free shards: %w", err)
	}
	mine, err := l.mine(ctx) // another relay may have taken some of them first
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, shard := range free {
		if slices.Contains(mine, shard) {
			l.held[shard] = asked.Add(l.life)
		}
	}
	return nil
}

func (l *leases) mine(ctx context.Context) ([]int, error) {
	mine, err := l.shards(ctx, `SELECT shard FROM outbox_shards WHERE owner = ? AND expires_at > UTC_TIMESTAMP(6)`, []byte(l.owner))
	return mine, wrap("read leases", err)
}

// leave gives everything back and takes the relay off the list of the living.
func (l *leases) leave(ctx context.Context) error {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	if err := l.giveBack(ctx, all); err != nil {
		return err
	}
	if _, err := l.store.sql.ExecContext(ctx, `DELETE FROM outbox_relays WHERE owner = ?`, []byte(l.owner)); err != nil {
		return fmt.Errorf("sign off the relay: %w", err)
	}
	return nil
}

func (l *leases) shards(ctx context.Context, query string, args ...any) ([]int, error) {
	return queryAll(ctx, l.store.sql, func(rows *sql.Rows, shard *int) error { return rows.Scan(shard) }, query, args...)
}

// wrap says what was being done when err happened; nil stays nil.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

func anys[T any](in []T) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = v
	}
	return out
}
