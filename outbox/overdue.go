package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lateGraces is after how many graces a message that may still be on its way through a busy work queue is sent once more: it
// may have been lost before it got there, and a queue that is consumed and never drained must not hide that. While nobody consumes,
// sending again would help nobody.
const lateGraces = 10

// overdue schedules again what was published and had no effect within the grace.
func (r *Reconciler) overdue(ctx context.Context, rc *runConn, p *Pass) error {
	queues := queues{depth: r.cfg.Depth, known: map[string]queue{}}
	err := rc.walk(ctx, p, `AND available_at <= UTC_TIMESTAMP(6)`, nil, func(rows []picked) error {
		var lost, late, resend, hopeless []picked
		for _, row := range rows {
			q, ok := queues.of(ctx, row.topic)
			switch {
			case !ok: // The broker did not say: the row stays as it is.
			case q.waiting && (row.repairs > 0 || q.idle || time.Duration(row.overdue)*time.Microsecond < (lateGraces-1)*r.cfg.Grace):
				late = append(late, row)
			case q.waiting:
				resend = append(resend, row)
			case row.repairs >= maxRepairs:
				hopeless = append(hopeless, row)
			default:
				lost = append(lost, row)
			}
		}
		p.foundRows(FoundLate, late, 0)
		const why = "last_error = 'published, but no effect within the grace period', failed_at = UTC_TIMESTAMP(6)"
		dead, _, err := r.repair(ctx, rc, p, hopeless, `UPDATE outbox_messages SET
			state = 'dead', available_at = NULL, revision = revision + 1, `+why)
		p.foundRows(FoundHopeless, dead, 0)
		if !p.DryRun() {
			r.store.cfg.Observer.died("overdue", len(dead))
		}
		for _, again := range []struct {
			kind string
			rows []picked
		}{{FoundOverdue, lost}, {FoundLate, resend}} {
			if err != nil {
				return err
			}
			var written, broken []picked
			// repairs is set last: MySQL assigns from left to right.
			written, broken, err = r.repair(ctx, rc, p, again.rows, `UPDATE outbox_messages SET state = 'scheduled',
				available_at = UTC_TIMESTAMP(6) + INTERVAL IF(repairs = 0, 0, LEAST(600, POW(2, repairs))) SECOND,
				revision = revision + 1, `+why+`, repairs = repairs + 1`)
			p.foundRows(again.kind, written, len(written))
			if rest := without(again.rows, append(written, broken...), picked.key); err == nil && len(rest) > 0 {
				var busy []picked
				busy, err = rc.unchanged(ctx, rest)
				p.foundRows(FoundLate, busy, 0) // somebody has them locked, in their effect mostly
			}
			if !p.DryRun() {
				r.store.cfg.Observer.repaired("overdue", len(written))
			}
		}
		return err
	})
	return errors.Join(err, queues.err)
}

// queues remembers what the broker has said of work queues.
type queues struct {
	depth QueueDepth
	known map[string]queue
	err   error // the first; nothing is asked after it
}

// queue is what matters of a work queue.
type queue struct {
	waiting bool // messages may still be on their way through it
	idle    bool // nobody consumes it
}

// of asks once for each topic. A topic without a queue has lost its messages: published again they are unrouted, and in front of
// an operator in the end.
func (q *queues) of(ctx context.Context, topic string) (queue, bool) {
	if q.depth == nil {
		return queue{}, true
	}
	if known, ok := q.known[topic]; ok {
		return known, true
	}
	if q.err != nil {
		return queue{}, false
	}
	ready, consumers, err := q.depth(ctx, topic)
	switch {
	case errors.Is(err, ErrNoQueue):
		q.known[topic] = queue{}
	case err != nil:
		q.err = fmt.Errorf("inspect the work queue of %s: %w", topic, err)
		return queue{}, false
	default:
		q.known[topic] = queue{waiting: ready > 0 || consumers == 0, idle: consumers == 0}
	}
	return q.known[topic], true
}

// unchanged returns those of rows that are still published as they were read, by a plain SELECT.
func (rc *runConn) unchanged(ctx context.Context, rows []picked) (same []picked, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err := rc.versions(ctx, rc.conn, rows, "")
	for _, row := range rows {
		if found[row.id] == row.revision {
			same = append(same, row)
		}
	}
	return same, err
}
