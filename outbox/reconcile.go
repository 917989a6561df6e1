package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// ErrNoQueue says that a topic has no work queue.
var ErrNoQueue = errors.New("outbox: the topic has no work queue")

// QueueDepth tells how many messages wait in a topic's work queue and how many consumers it has. Its error wraps ErrNoQueue
// when there is no such queue.
type QueueDepth func(ctx context.Context, topic string) (ready, consumers int, err error)

// ReconcileConfig tunes a Reconciler. The zero value is usable.
type ReconcileConfig struct {
	// Grace must be that of the relays. Default 30 s.
	Grace time.Duration
	// Depth is asked before overdue messages of a topic are published again: while its queue has ready messages or no
	// consumer, they are late rather than lost. Default: not asked.
	Depth QueueDepth
	// Reach is that of the relays. Unless it has UpTo, what is published is in queues: a restart of the broker is no loss then, and
	// what is published further ahead of its time than the longest of its Delays is from before, and scheduled again. Default: any
	// message is published ahead.
	Reach func() Reach
	// Checks are the application's own audits.
	Checks []Check
	// Owner names this process in the records of its runs, 1 to 64 bytes of [A-Za-z0-9._-]. Beside a relay: Relay.Owner, so that a
	// process has one name. Default: one that is made as that of RelayConfig.Owner.
	Owner string
	// Progress is told how far a run has come, often and from the goroutine that runs it. Default: nobody.
	Progress func(Progress)
	// Log receives what an operator should know. Default: discarded.
	Log *slog.Logger
}

// Reconciler finds what the broker has lost and schedules it again, audits, and deletes what is finished for long. It is safe
// for concurrent use. Of all passes that are begun at the same time on one ledger, by whatever process, one works and the others
// return at once; the same holds for audits, for re-arms and for purges.
//
// A run takes a connection out of the store's pool for itself; Checks need another one.
type Reconciler struct {
	store *Store
	cfg   ReconcileConfig
}

// NewReconciler returns a reconciler. It does no I/O.
func NewReconciler(store *Store, cfg ReconcileConfig) (*Reconciler, error) {
	if store == nil {
		return nil, errors.New("outbox: a reconciler needs a store")
	}
	setDefault(&cfg.Grace, 30*time.Second)
	setDefault(&cfg.Owner, newOwner())
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Reach == nil {
		cfg.Reach = anywhere
	}
	if !isName(cfg.Owner, 64) {
		return nil, fmt.Errorf("outbox: Owner %q is not 1 to 64 characters of [A-Za-z0-9._-]", clip(cfg.Owner))
	}
	for i, check := range cfg.Checks {
		if check.Name == "" || check.Run == nil {
			return nil, fmt.Errorf("outbox: Checks[%d] has no Name or no Run", i)
		}
	}
	return &Reconciler{store: store, cfg: cfg}, nil
}

// Run makes a pass: it schedules again what an earlier life of the broker held and what is overdue. With Scope.Audit it then audits.
// It deletes nothing: that is Purge.
//
// Each part works in chunks of a few hundred rows by primary key. A row that somebody has locked is left to the next pass, and one
// that cannot be written is reported (FoundBroken) and does not keep the others from being mended. A part that ends with an error
// or a panic does not keep the others from running: the report is then complete but for that part, and the error says which it was.
//
// When ctx ends Run stops after the statement under way. Every run that was not skipped leaves a record (Store.LookupRun).
func (r *Reconciler) Run(ctx context.Context, scope Scope) (Report, error) {
	return r.run(ctx, scope, 0)
}

// RunRequested executes the oldest run that Store.RequestRun has asked for and that can be begun, and returns its report. Report.Run
// is 0 if there was none, or if others of the kinds that are asked for are under way.
func (r *Reconciler) RunRequested(ctx context.Context) (Report, error) {
	next, err := r.store.nextRequested(ctx)
	if err != nil {
		return Report{}, err
	}
	for _, run := range next {
		if report, err := r.run(ctx, run.scope, run.id); err != nil || !report.Skipped {
			return report, err
		}
	}
	return Report{}, nil
}

func (r *Reconciler) run(ctx context.Context, scope Scope, requested int64) (Report, error) {
	return r.record(ctx, scope.kind(), scope, requested, func(ctx context.Context, rc *runConn, p *Pass) {
		if !reconciles {
			return
		}
		r.pass(ctx, rc, p)
		if scope.Audit {
			r.audit(ctx, rc, p)
		}
	})
}

// record takes the lock of the kind, writes down that a run has begun, does it, and writes down how it ended.
func (r *Reconciler) record(ctx context.Context, kind RunKind, scope Scope, requested int64, do func(context.Context, *runConn, *Pass)) (Report, error) {
	start := time.Now()
	p := newPass(scope, &r.cfg)
	err := r.withConn(ctx, func(ctx context.Context, rc *runConn) error {
		got, err := rc.lock(ctx, kind)
		if err != nil || !got {
			p.report.Skipped = !got
			return err
		}
		defer rc.unlock(ctx, kind) // and not only by closing the connection, of which the server hears later
		if p.report.Run, err = rc.begin(ctx, kind, scope.DryRun, requested, r.cfg.Owner); err != nil || p.report.Run == 0 {
			p.report.Skipped = err == nil
			return err
		}
		do(ctx, rc, p)
		report, err := p.end(ctx, start)
		return errors.Join(err, rc.finish(ctx, report, err))
	})
	return p.report, err
}

// pass does the work of each minute. It must not take long, as what it mends waits for it: so purging is no part of it. What another
// process is at, as it may be in an audit, is left to that one.
func (r *Reconciler) pass(ctx context.Context, rc *runConn, p *Pass) {
	if p.scope.Audit {
		got, err := rc.lock(ctx, RunPass)
		if err != nil || !got {
			p.leave("the pass", err)
			return
		}
		defer rc.unlock(ctx, RunPass)
	}
	if got, err := rc.lock(ctx, RunRearm); err != nil || !got {
		p.leave(partRearm, err)
	} else {
		p.run(ctx, partRearm, func(ctx context.Context, p *Pass) error { return r.rearm(ctx, rc, p) })
		rc.unlock(ctx, RunRearm)
	}
	p.run(ctx, "schedule overdue messages again", func(ctx context.Context, p *Pass) error { return r.overdue(ctx, rc, p) })
}

// partRearm is the part of a pass that Rearm consists of.
const partRearm = "schedule again what the broker has lost"

// audit reports what waits for an operator, and runs the application's checks.
func (r *Reconciler) audit(ctx context.Context, rc *runConn, p *Pass) {
	p.run(ctx, "look for messages that are not handed over", func(ctx context.Context, p *Pass) error { return r.unpublished(ctx, rc, p) })
	p.run(ctx, "look at dead messages", func(ctx context.Context, p *Pass) error {
		for shard := range shards {
			err := rc.report(ctx, p, FoundDead, "dead messages", `SELECT id FROM outbox_messages FORCE INDEX (due)
				WHERE state = 'dead' AND shard = ? AND id > ? ORDER BY id LIMIT ?`, shard) // index: due (state, shard), with the id
			if err != nil {
				return err
			}
		}
		return nil
	})
	p.run(ctx, "look at kept deliveries", func(ctx context.Context, p *Pass) error {
		// What was unrouted is a message of the ledger, and either scheduled again or dead.
		return rc.report(ctx, p, FoundKept, "kept deliveries", `SELECT id FROM outbox_unrouted WHERE reason <> 'unrouted' AND id > ? ORDER BY id LIMIT ?`)
	})
	for _, check := range r.cfg.Checks {
		p.run(ctx, "check "+check.Name, func(ctx context.Context, p *Pass) error {
			return rc.during(ctx, func(ctx context.Context) error { return check.Run(ctx, p) })
		})
	}
}

// unpublished reports what relays pass over. A relay that is late, or a broker that is away, is not told apart here from a shard
// that has lost its row: an operator must see both.
func (r *Reconciler) unpublished(ctx context.Context, rc *runConn, p *Pass) error {
	return rc.walkIn(ctx, p, Scheduled, `AND available_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`,
		[]any{(lateGraces * r.cfg.Grace).Microseconds()}, func(rows []picked) error {
			p.foundRows(FoundUnpublished, rows, 0)
			return nil
		})
}

// report reports the ids that a query returns, in chunks: its last two parameters are the id after which to go on, and how many.
func (rc *runConn) report(ctx context.Context, p *Pass, kind, what, query string, args ...any) error {
	for after := int64(0); ; {
		ids, err := rc.ids(ctx, query, append(slices.Clip(args), after, reportRows)...)
		if err != nil {
			return err
		}
		rows := make([]picked, len(ids))
		for i, id := range ids {
			rows[i].id = id
			after = id
		}
		p.Looked(what, len(ids))
		p.foundRows(kind, rows, 0)
		if len(ids) < reportRows {
			return nil
		}
	}
}

const reportRows = 5000

func (rc *runConn) ids(ctx context.Context, query string, args ...any) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return queryIDs(ctx, rc.conn, query, args...)
}
