package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	purgeRows = 50
	// A purge rests for so many times as long as it worked: it has time, and whoever writes besides has not.
	purgeRest = 9
	// How long a relay that said nothing stays on the list.
	relayForgotten = time.Hour
)

// purge deletes finished messages whose retention has ended, and what else is kept for a time only. It works in small chunks
// by primary key and rests for a multiple of what each took, so that inserts hardly notice.
func (r *Reconciler) purge(ctx context.Context, rc *runConn, p *Pass) error {
	retention := r.store.cfg.Retention.Microseconds()
	for _, state := range []State{Done, Canceled} {
		for shard := range shards {
			// index: due (state, shard, available_at); picked by plain SELECT, so that nothing but the rows themselves is locked
			err := rc.purge(ctx, p, "outbox_messages", "FORCE INDEX (due)",
				"state = ? AND shard = ? AND available_at <= UTC_TIMESTAMP(6)", string(state), shard)
			if err != nil {
				return fmt.Errorf("%s messages: %w", state, err)
			}
		}
	}
	for table, where := range map[string]string{
		"outbox_unrouted":       "kept_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND",                                               // index: kept (kept_at)
		"outbox_reconcile_runs": "requested_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND state IN ('completed', 'incomplete')", // index: by_age (requested_at)
	} {
		if err := rc.purge(ctx, p, table, "", where, retention); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	if p.DryRun() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := rc.conn.ExecContext(ctx, `DELETE FROM outbox_relays WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`,
		relayForgotten.Microseconds()); err != nil {
		return fmt.Errorf("forget relays: %w", err)
	}
	return nil
}

// purge deletes the rows of a table that where picks, by primary key. In a dry run it counts them.
func (rc *runConn) purge(ctx context.Context, p *Pass, table, hint, where string, args ...any) error {
	from := " FROM " + table + " " + hint + " WHERE " + where
	if p.DryRun() {
		n, err := rc.ids(ctx, "SELECT COUNT(*)"+from, args...)
		if err == nil {
			p.purged(int(n[0]))
		}
		return err
	}
	var kept []int64 // that cannot be deleted now, and must not hold up the others
	for {
		start := time.Now()
		query, all := "SELECT id"+from, slices.Clip(args)
		if len(kept) > 0 {
			query, all = query+" AND id NOT IN ("+marks(len(kept))+")", append(all, anys(kept)...)
		}
		ids, err := rc.ids(ctx, query+" LIMIT ?", append(all, purgeRows)...)
		if err != nil || len(ids) == 0 {
			return err
		}
		n, stuck, err := rc.removeAll(ctx, table, where, args, ids)
		p.purged(int(n))
		if kept = append(kept, stuck...); err != nil || len(ids) < purgeRows {
			return err
		}
		if len(kept) > purgeRows {
			return fmt.Errorf("%d rows cannot be deleted, the first is %d", len(kept), kept[0])
		}
		if err := sleep(ctx, min(time.Second, purgeRest*time.Since(start))); err != nil {
			return err
		}
	}
}

// removeAll deletes rows, together or else one by one, and returns those that somebody has locked or refers to.
func (rc *runConn) removeAll(ctx context.Context, table, where string, args []any, ids []int64) (n int64, stuck []int64, err error) {
	remove := func(ids []int64) (int64, error) {
		return rc.remove(ctx, "DELETE FROM "+table+" WHERE id IN ("+marks(len(ids))+") AND "+where, append(anys(ids), args...))
	}
	if n, err = remove(ids); err == nil || ctx.Err() != nil || isOthersFault(err) {
		return n, nil, err
	}
	for _, id := range ids {
		one, err := remove([]int64{id})
		switch {
		case err == nil:
			n += one
		case ctx.Err() != nil || isOthersFault(err):
			return n, stuck, err
		case len(stuck) < 3: // each costs a second if it is locked
			stuck = append(stuck, id)
		default:
			return n, stuck, fmt.Errorf("delete %d and others: %w", id, err)
		}
	}
	return n, stuck, nil
}

func (rc *runConn) remove(ctx context.Context, statement string, args []any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return execCount(ctx, rc.conn, statement, args...)
}
