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

// Purge deletes what has been finished for longer than StoreConfig.Retention: done and canceled messages, kept deliveries and records
// of runs; audit entries after 400 days; and from outbox_relays who has said nothing for an hour. It works in small chunks by primary key and rests for a multiple
// of what each took, so that inserts hardly notice. It may therefore take an hour, or a day, and there is no limit: call it beside
// Run, as often, and not before or after it. It holds up no pass, no audit and no re-arm, and those do not hold it up.
//
// A part of it that ends with an error does not keep the others from running. When ctx ends Purge stops after the statement under
// way. It leaves a record as Run does when there was something to delete; else Report.Run is 0. A dry run counts and deletes nothing.
func (r *Reconciler) Purge(ctx context.Context, dryRun bool) (Report, error) {
	needed, err := r.purgeable(ctx, r.store.sql)
	if err != nil || !needed {
		return Report{DryRun: dryRun}, err
	}
	return r.record(ctx, RunPurge, Scope{DryRun: dryRun}, 0, func(ctx context.Context, rc *runConn, p *Pass) {
		for _, part := range r.purging() {
			p.runLong(ctx, "purge "+part.what, func(ctx context.Context, p *Pass) error {
				for _, set := range part.sets {
					if err := rc.purge(ctx, p, set); err != nil {
						return err
					}
				}
				return nil
			})
		}
		p.run(ctx, "purge relays", func(ctx context.Context, p *Pass) error { return rc.forgetRelays(ctx, p) })
	})
}

// expired are rows of a table with an id, to be deleted.
type expired struct {
	table, hint, where string
	args               []any
}

func (e expired) from() string { return " FROM " + e.table + " " + e.hint + " WHERE " + e.where }

// purgePart is a part of a purge: what is deleted under one name.
type purgePart struct {
	what string
	sets []expired
}

// purging is all that a purge deletes by id. What is few comes first: it must not wait until the messages are through.
func (r *Reconciler) purging() []purgePart {
	retention := []any{r.store.cfg.Retention.Microseconds()}
	parts := []purgePart{
		{"kept deliveries", []expired{{
			table: "outbox_unrouted", where: "kept_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND", args: retention, // index: kept (kept_at)
		}}},
		{"records of runs", []expired{{
			table: "outbox_reconcile_runs", // index: by_age (requested_at)
			where: "requested_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND state IN ('completed', 'incomplete')", args: retention,
		}}},
		{"audit entries", []expired{{ // index: by_age (acted_at)
			table: "outbox_audit", where: "acted_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND", args: []any{auditRetention.Microseconds()},
		}}},
	}
	for _, state := range []State{Done, Canceled} {
		messages := purgePart{what: string(state) + " messages"}
		for shard := range shards {
			messages.sets = append(messages.sets, expired{
				table: "outbox_messages", hint: "FORCE INDEX (due)", // index: due (state, shard, available_at)
				where: "state = ? AND shard = ? AND available_at <= UTC_TIMESTAMP(6)", args: []any{string(state), shard},
			})
		}
		parts = append(parts, messages)
	}
	return parts
}

// silentRelays are those that are forgotten. There are few, so there is no index.
const silentRelays = " FROM outbox_relays WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"

// purgeable tells whether there is anything to delete, by looking for one row.
func (r *Reconciler) purgeable(ctx context.Context, c conn) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for _, part := range r.purging() {
		for _, set := range part.sets {
			if ids, err := queryIDs(ctx, c, "SELECT id"+set.from()+" LIMIT 1", set.args...); err != nil || len(ids) > 0 {
				return err == nil, wrap("look for "+part.what+" to purge", err)
			}
		}
	}
	silent, err := queryIDs(ctx, c, "SELECT COUNT(*)"+silentRelays, relayForgotten.Microseconds())
	return err == nil && silent[0] > 0, wrap("look for relays to purge", err)
}

func (rc *runConn) forgetRelays(ctx context.Context, p *Pass) error {
	if p.DryRun() {
		return rc.countPurged(ctx, p, silentRelays, relayForgotten.Microseconds())
	}
	n, err := rc.remove(ctx, "DELETE"+silentRelays, []any{relayForgotten.Microseconds()})
	p.purged(int(n))
	return err
}

// countPurged counts what a dry run leaves.
func (rc *runConn) countPurged(ctx context.Context, p *Pass, from string, args ...any) error {
	n, err := rc.ids(ctx, "SELECT COUNT(*)"+from, args...)
	if err == nil {
		p.purged(int(n[0]))
	}
	return err
}

// purge deletes rows, picked by plain SELECT, so that nothing but the rows themselves is locked. In a dry run it counts them.
func (rc *runConn) purge(ctx context.Context, p *Pass, set expired) error {
	if p.DryRun() {
		return rc.countPurged(ctx, p, set.from(), set.args...)
	}
	var kept []int64 // that cannot be deleted now, and must not hold up the others
	for {
		start := time.Now()
		query, all := "SELECT id"+set.from(), slices.Clip(set.args)
		if len(kept) > 0 {
			query, all = query+" AND id NOT IN ("+marks(len(kept))+")", append(all, anys(kept)...)
		}
		ids, err := rc.ids(ctx, query+" LIMIT ?", append(all, purgeRows)...)
		if err != nil || len(ids) == 0 {
			return err
		}
		n, stuck, err := rc.removeAll(ctx, set.table, set.where, set.args, ids)
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
