package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	// A broker that restarts every few seconds must not be fed everything each time.
	rearmRest = 30 * time.Second
	// Once when the epoch was raised, and once more for what was settled in that very moment.
	rearmTimes = 2
)

// Rearm only schedules again what an earlier life of the broker held: those that are due first, then the others, at most twice
// for each epoch and not sooner than 30 s after the last time. It does the same with what was published ahead by a strategy that is
// not used any more (ReconcileConfig.Reach). Call it when the broker may have restarted or the strategy may have changed, which is at
// each connection. When it has something to do it leaves a record as Run does.
//
// It returns when it should be called again, counted from now; 0: not before the next connection. That is so when it was skipped
// because another process is at it, when it rests, and after the first time for an epoch.
func (r *Reconciler) Rearm(ctx context.Context) (report Report, again time.Duration, err error) {
	todo, err := r.rearming(ctx, r.store.sql)
	switch {
	case err != nil:
		return Report{}, 0, err
	case !epochs || !todo.needed:
		return Report{}, 0, nil
	case todo.rest > 0:
		return Report{}, todo.rest, nil
	}
	report, err = r.record(ctx, RunRearm, Scope{}, 0, func(ctx context.Context, rc *runConn, p *Pass) {
		p.run(ctx, partRearm, func(ctx context.Context, p *Pass) error { return r.rearm(ctx, rc, p) })
	})
	switch {
	case err != nil:
		again = 5 * time.Second
	case report.Skipped:
		again = time.Second
	default:
		again = rearmRest
	}
	return report, again, err
}

// rearming is what is to be done about the broker's epoch.
type rearming struct {
	epoch  int64
	before int64 // what was published in an epoch before this one is lost
	ahead  int64 // what is published further ahead of its time is as good as lost: microseconds of available_at; 0: nothing is
	needed bool
	rest   time.Duration // until it may be done
}

func (r *Reconciler) rearming(ctx context.Context, c conn) (rearming, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var (
		todo                  rearming
		empty, rearmed, since int64
		rearms                int
	)
	if err := c.QueryRowContext(ctx, `SELECT broker_epoch, empty_epoch, rearmed_epoch, rearms,
			COALESCE(TIMESTAMPDIFF(MICROSECOND, rearmed_at, UTC_TIMESTAMP(6)), ?)
		FROM outbox_meta WHERE id = 1`, rearmRest.Microseconds()).Scan(&todo.epoch, &empty, &rearmed, &rearms, &since); err != nil {
		return rearming{}, fmt.Errorf("read the broker epoch: %w", err)
	}
	todo.before = todo.epoch
	if reach := r.cfg.Reach(); reach.UpTo == 0 {
		todo.before = empty // messages are in queues that survive a restart
		// Give or take a second.
		far := (reach.furthest() + r.cfg.Grace + time.Second).Microseconds()
		left, err := r.anyAhead(ctx, c, far)
		if err != nil {
			return rearming{}, err
		}
		if left {
			todo.ahead = far
		}
	}
	todo.needed = todo.ahead > 0 || rearmed < todo.epoch || rearms < rearmTimes && todo.epoch > 0
	// A clock that was set back must not make it rest for longer.
	todo.rest = min(rearmRest, rearmRest-time.Duration(since)*time.Microsecond)
	return todo, nil
}

// anyAhead tells whether a message is published whose available_at is further ahead than far, in microseconds.
func (r *Reconciler) anyAhead(ctx context.Context, c conn, far int64) (bool, error) {
	for shard := range shards {
		var ahead bool
		// index: due (state, shard, available_at)
		if err := c.QueryRowContext(ctx, `SELECT COALESCE(MAX(available_at) > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, FALSE)
			FROM outbox_messages WHERE state = 'published' AND shard = ?`, far, shard).Scan(&ahead); err != nil || ahead {
			return ahead, err
		}
	}
	return false, nil
}

// rearm is done under the lock of its kind. If we die on the way, the next one begins again: what was scheduled already is not
// published any more.
func (r *Reconciler) rearm(ctx context.Context, rc *runConn, p *Pass) error {
	todo, err := r.rearming(ctx, rc.conn)
	if err != nil || !epochs || !todo.needed || todo.rest > 0 {
		return err
	}
	grace := r.cfg.Grace.Microseconds()
	total, locked := 0, 0
	kind := FoundEpoch
	// What waits for another attempt keeps its pause, as well as the grace that is set now tells it; the others are due when they are.
	again := func(rows []picked) error {
		written, broken, err := r.repair(ctx, rc, p, rows, `UPDATE outbox_messages SET
			state = 'scheduled', revision = revision + 1,
			available_at = GREATEST(due_at, UTC_TIMESTAMP(6), IF(attempts = 0, due_at, available_at - INTERVAL ? MICROSECOND))`, grace)
		p.foundRows(kind, written, len(written))
		if !p.DryRun() {
			total += len(written)
			r.store.cfg.Observer.repaired(kind, len(written))
		}
		if rest := without(rows, append(written, broken...), picked.key); err == nil && len(rest) > 0 {
			var busy []picked
			busy, err = rc.unchanged(ctx, rest)
			locked += len(busy)
		}
		return err
	}
	// What is due by now first. A dry run, which leaves rows as they are, would meet those twice.
	if !p.DryRun() {
		err = rc.walk(ctx, p, `AND available_at <= UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND AND broker_epoch < ?`, []any{grace, todo.before}, again)
	}
	if err == nil {
		err = rc.walk(ctx, p, `AND broker_epoch < ?`, []any{todo.before}, again)
	}
	fed := total + locked
	if err == nil && todo.ahead > 0 {
		kind = FoundAhead
		err = rc.walk(ctx, p, `AND available_at > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`, []any{todo.ahead}, again)
	}
	if err != nil || p.DryRun() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// The first assignment reads the old rearmed_epoch: MySQL assigns from left to right. Where there was nothing to do, no rest
	// is needed, and neither after what another strategy had published ahead: with it goes a broker that may be an empty one, whose epoch is raised
	// a moment later. Where rows were locked, it does not count, and those are tried again after the rest.
	counts := locked == 0
	if _, err := rc.conn.ExecContext(ctx, `UPDATE outbox_meta SET
			rearms = IF(rearmed_epoch < ?, ?, rearms + ?), rearmed_epoch = ?,
			rearmed_at = IF(?, UTC_TIMESTAMP(6), rearmed_at)
		WHERE id = 1 AND rearmed_epoch <= ?`, todo.epoch, counts, counts, todo.epoch, fed > 0, todo.epoch); err != nil {
		return fmt.Errorf("note the re-armed epoch: %w", err)
	}
	if total > 0 {
		r.cfg.Log.InfoContext(ctx, "messages of an earlier broker epoch scheduled again", "epoch", todo.epoch, "messages", total)
	}
	return nil
}
