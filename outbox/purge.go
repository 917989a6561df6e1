package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	purgeRows = 500
	// How long a relay that said nothing stays on the list.
	relayForgotten = time.Hour
)

// purge deletes finished messages whose retention has ended, and what else is kept for a time only. It works in small chunks
// by primary key and rests as long as each took, so that inserts hardly notice.
func (r *Reconciler) purge(ctx context.Context, report *Report) error {
	for _, state := range []State{Done, Canceled} {
		for shard := range shards {
			n, err := r.inChunks(ctx, func(ctx context.Context) (int64, error) { return r.purgeShard(ctx, state, shard) })
			report.Purged += n
			if err != nil {
				return fmt.Errorf("purge %s messages: %w", state, err)
			}
		}
	}
	retention := r.store.cfg.Retention.Microseconds()
	if _, err := r.inChunks(ctx, func(ctx context.Context) (int64, error) {
		return execCount(ctx, r.store.sql, `DELETE FROM outbox_unrouted
			WHERE kept_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY kept_at LIMIT ?`, retention, purgeRows)
	}); err != nil {
		return fmt.Errorf("purge kept deliveries: %w", err)
	}
	if _, err := r.store.sql.ExecContext(ctx, `DELETE FROM outbox_relays WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`,
		relayForgotten.Microseconds()); err != nil {
		return fmt.Errorf("forget relays: %w", err)
	}
	return nil
}

// inChunks repeats one until it deletes less than a full chunk.
func (r *Reconciler) inChunks(ctx context.Context, one func(ctx context.Context) (int64, error)) (int, error) {
	for total := 0; ; {
		start := time.Now()
		chunk, cancel := context.WithTimeout(ctx, statementTimeout)
		n, err := one(chunk)
		cancel()
		total += int(n)
		if err != nil || n < purgeRows {
			return total, err
		}
		if err := sleep(ctx, time.Since(start)); err != nil {
			return total, err
		}
	}
}

func (r *Reconciler) purgeShard(ctx context.Context, state State, shard int) (int64, error) {
	// index: due (state, shard, available_at); picked by plain SELECT, so that nothing but the rows themselves is locked
	ids, err := queryIDs(ctx, r.store.sql, `SELECT id FROM outbox_messages FORCE INDEX (due)
		WHERE state = ? AND shard = ? AND available_at <= UTC_TIMESTAMP(6) ORDER BY available_at LIMIT ?`, string(state), shard, purgeRows)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return execCount(ctx, r.store.sql, `DELETE FROM outbox_messages WHERE id IN (`+marks(len(ids))+`) AND state = ?`, append(anys(ids), string(state))...)
}
