package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	// Log receives what an operator should know. Default: discarded.
	Log *slog.Logger
}

// Reconciler finds what the broker has lost and schedules it again. It is safe for concurrent use; of all that run at the
// same time on one ledger, one works and the others return at once.
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{store: store, cfg: cfg}, nil
}

// Report is what a pass found and did.
type Report struct {
	Skipped  bool          `json:"skipped"`  // another pass was under way
	Rearmed  int           `json:"rearmed"`  // published in an earlier life of the broker, scheduled again
	Repaired int           `json:"repaired"` // overdue without effect, scheduled again
	Late     int           `json:"late"`     // overdue, but their work queue has ready messages or nobody consumes it
	Dead     int           `json:"dead"`     // repaired ten times without a delivery, left to an operator
	Purged   int           `json:"purged"`   // finished longer ago than the retention, deleted
	Took     time.Duration `json:"took"`
}

const repairRows = 200

// Run makes one pass: it re-arms what an earlier life of the broker held, schedules overdue messages again, and deletes what has
// been finished for longer than StoreConfig.Retention.
func (r *Reconciler) Run(ctx context.Context) (Report, error) {
	start := time.Now()
	var report Report
	err := r.alone(ctx, &report, func(ctx context.Context) error {
		if err := r.rearm(ctx, &report); err != nil {
			return err
		}
		if err := r.overdue(ctx, &report); err != nil {
			return err
		}
		return r.purge(ctx, &report)
	})
	report.Took = time.Since(start)
	return report, err
}

// Rearm only schedules again what an earlier life of the broker held, if that has not been done; the worker calls it as soon
// as it has found that the broker restarted.
func (r *Reconciler) Rearm(ctx context.Context) (Report, error) {
	start := time.Now()
	var report Report
	err := r.alone(ctx, &report, func(ctx context.Context) error { return r.rearm(ctx, &report) })
	report.Took = time.Since(start)
	return report, err
}

// alone runs fn under a lock of the database server, which saves double work: correctness does not need it.
func (r *Reconciler) alone(ctx context.Context, report *Report, fn func(ctx context.Context) error) error {
	conn, err := r.store.sql.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open the reconciler's connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	const name = "CONCAT('duebox.', LEFT(SHA2(DATABASE(), 256), 32))" // MySQL takes 64 characters and has no MD5 any more
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", 0)").Scan(&got); err != nil {
		return fmt.Errorf("lock the pass: %w", err)
	}
	if got.Int64 != 1 {
		report.Skipped = true
		return nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
		defer cancel()
		_, _ = conn.ExecContext(ctx, "DO RELEASE_LOCK("+name+")")
	}()
	return fn(ctx)
}

// rearm walks over the published rows in the order in which they fire. If we die on the way, the next pass begins again: what
// was scheduled already is not published any more.
func (r *Reconciler) rearm(ctx context.Context, report *Report) error {
	var epoch, rearmed int64
	if err := r.store.sql.QueryRowContext(ctx, `SELECT broker_epoch, rearmed_epoch FROM outbox_meta WHERE id = 1`).Scan(&epoch, &rearmed); err != nil {
		return fmt.Errorf("read the broker epoch: %w", err)
	}
	if rearmed >= epoch {
		return nil
	}
	n, err := r.walk(ctx, `AND broker_epoch < ?`, []any{epoch}, func(rows []picked) (int64, error) {
		return r.again(ctx, rows, `UPDATE outbox_messages SET
			state = 'scheduled', revision = revision + 1,
			available_at = GREATEST(due_at, available_at - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6))`, r.cfg.Grace.Microseconds())
	})
	report.Rearmed += n
	r.store.cfg.Observer.repaired("epoch", n)
	if err != nil {
		return fmt.Errorf("schedule messages of an earlier broker epoch again: %w", err)
	}
	if _, err := r.store.sql.ExecContext(ctx, `UPDATE outbox_meta SET rearmed_epoch = ?
		WHERE id = 1 AND rearmed_epoch < ?`, epoch, epoch); err != nil {
		return fmt.Errorf("note the re-armed epoch: %w", err)
	}
	r.cfg.Log.InfoContext(ctx, "messages of an earlier broker epoch scheduled again", "epoch", epoch, "messages", n)
	return nil
}

func (r *Reconciler) overdue(ctx context.Context, report *Report) error {
	waits := map[string]bool{} // topic -> its work queue is not drained
	var unasked error
	n, err := r.walk(ctx, `AND available_at <= UTC_TIMESTAMP(6)`, nil, func(rows []picked) (int64, error) {
		var lost, hopeless []picked
		for _, row := range rows {
			wait, err := r.waiting(ctx, waits, row.topic)
			switch {
			case err != nil:
				unasked = err // and the row stays as it is
			case wait:
				report.Late++
			case row.repairs >= maxRepairs:
				hopeless = append(hopeless, row)
			default:
				lost = append(lost, row)
			}
		}
		const why = "last_error = 'published, but no effect within the grace period'"
		dead, err := r.again(ctx, hopeless, `UPDATE outbox_messages SET
			state = 'dead', available_at = NULL, revision = revision + 1, `+why)
		report.Dead += int(dead)
		r.store.cfg.Observer.died("overdue", int(dead))
		if err != nil {
			return 0, err
		}
		// repairs is set last: MySQL assigns from left to right.
		return r.again(ctx, lost, `UPDATE outbox_messages SET state = 'scheduled',
			available_at = UTC_TIMESTAMP(6) + INTERVAL IF(repairs = 0, 0, LEAST(600, POW(2, repairs))) SECOND,
			revision = revision + 1, `+why+`, repairs = repairs + 1`)
	})
	report.Repaired += n
	r.store.cfg.Observer.repaired("overdue", n)
	if err != nil {
		return fmt.Errorf("schedule overdue messages again: %w", err)
	}
	return unasked
}

// waiting tells whether a topic's messages may still be on their way through its work queue. A topic without a queue has lost
// them: published again they are unrouted, and in front of an operator in the end.
func (r *Reconciler) waiting(ctx context.Context, known map[string]bool, topic string) (bool, error) {
	if r.cfg.Depth == nil {
		return false, nil
	}
	if wait, ok := known[topic]; ok {
		return wait, nil
	}
	ready, consumers, err := r.cfg.Depth(ctx, topic)
	switch {
	case errors.Is(err, ErrNoQueue):
		known[topic] = false
	case err != nil:
		return false, fmt.Errorf("inspect the work queue of %s: %w", topic, err)
	default:
		known[topic] = ready > 0 || consumers == 0
	}
	return known[topic], nil
}

// picked is a row to be written, as it was read.
type picked struct {
	id, revision int64
	topic        string
	available    int64
	repairs      int
}

// walk reads published rows shard by shard in index order by plain SELECT, and hands them to write in chunks. It returns
// how many rows were written.
func (r *Reconciler) walk(ctx context.Context, where string, args []any, write func([]picked) (int64, error)) (int, error) {
	total := 0
	for shard := range shards {
		var from position
		for {
			rows, err := r.pick(ctx, shard, from, where, args)
			if err != nil {
				return total, err
			}
			if len(rows) == 0 {
				break
			}
			last := rows[len(rows)-1]
			from = position{last.available, last.id}
			n, err := write(rows)
			total += int(n)
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

func (r *Reconciler) pick(ctx context.Context, shard int, from position, where string, args []any) ([]picked, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	at := fromMicros(from.available).Format(sqlTime)
	// index: due (state, shard, available_at)
	return queryAll(ctx, r.store.sql, func(rows *sql.Rows, p *picked) error {
		return rows.Scan(&p.id, &p.revision, &p.topic, &p.available, &p.repairs)
	}, `SELECT id, revision, topic, `+micros1970("available_at")+`, repairs
		FROM outbox_messages FORCE INDEX (due)
		WHERE state = 'published' AND shard = ? AND (available_at > ? OR (available_at = ? AND id > ?)) `+where+`
		ORDER BY available_at, id LIMIT ?`, append(append([]any{shard, at, at, from.id}, args...), repairRows)...)
}

// again writes rows by primary key, if they are still as they were read.
func (r *Reconciler) again(ctx context.Context, rows []picked, update string, args ...any) (int64, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var where strings.Builder
	where.WriteString(" WHERE state = 'published' AND id IN (" + marks(len(rows)) + ") AND CASE id")
	for _, row := range rows {
		args = append(args, row.id)
	}
	for _, row := range rows {
		where.WriteString(" WHEN ? THEN revision = ?")
		args = append(args, row.id, row.revision)
	}
	where.WriteString(" END")
	return execCount(ctx, r.store.sql, update+where.String(), args...)
}
