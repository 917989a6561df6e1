package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
)

// repairRows is how many rows one transaction of a repair writes.
const repairRows = 200

// picked is a published row as it was read without a lock.
type picked struct {
	id, revision int64
	topic        string
	available    int64 // microseconds
	overdue      int64 // microseconds since then, by the database's clock
	repairs      int
}

// walk reads published rows shard by shard in index order by plain SELECT, and hands them over in chunks. The condition may
// only name columns.
func (h *hold) walk(ctx context.Context, p *Pass, where string, args []any, do func(rows []picked) error) error {
	for shard := range shards {
		for from := (position{}); ; {
			rows, err := h.pick(ctx, shard, from, where, args)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			p.Looked("published messages", len(rows))
			last := rows[len(rows)-1]
			from = position{last.available, last.id}
			if err := do(rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hold) pick(ctx context.Context, shard int, from position, where string, args []any) ([]picked, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	at := fromMicros(from.available).Format(sqlTime)
	// index: due (state, shard, available_at)
	rows, err := queryAll(ctx, h.conn, func(rows *sql.Rows, p *picked) error {
		return rows.Scan(&p.id, &p.revision, &p.topic, &p.available, &p.overdue, &p.repairs)
	}, `SELECT id, revision, topic, `+micros1970("available_at")+`,
			TIMESTAMPDIFF(MICROSECOND, available_at, UTC_TIMESTAMP(6)), repairs
		FROM outbox_messages FORCE INDEX (due)
		WHERE state = 'published' AND shard = ? AND (available_at > ? OR (available_at = ? AND id > ?)) `+where+`
		ORDER BY available_at, id LIMIT ?`, append(append([]any{shard, at, at, from.id}, args...), repairRows)...)
	if err != nil {
		return nil, fmt.Errorf("read published messages: %w", err)
	}
	return rows, nil
}

// repair writes rows that are still published as they were read, in one transaction, and reports them under kind. What somebody
// holds locked is that one's work and left out. If the rows cannot be written together they are written one by one, and one
// that cannot be written at all is reported as broken. It returns how many were written.
func (r *Reconciler) repair(ctx context.Context, h *hold, p *Pass, kind string, rows []picked, update string, args ...any) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if p.DryRun() {
		p.foundRows(kind, rows, 0)
		return 0, nil
	}
	written, err := h.write(ctx, rows, update, args)
	switch {
	case err == nil:
		p.foundRows(kind, written, len(written))
		return len(written), nil
	case ctx.Err() != nil || IsOutage(err) || errors.Is(err, context.DeadlineExceeded):
		return 0, err
	case len(rows) == 1 && IsRetryable(err): // busy after all
		return 0, nil
	case len(rows) == 1:
		p.Found(FoundBroken, strconv.FormatInt(rows[0].id, 10), false)
		r.cfg.Log.LogAttrs(ctx, slog.LevelError, "message cannot be scheduled again", slog.Int64("id", rows[0].id), slog.Any("error", err))
		return 0, nil
	}
	total := 0
	for i := range rows {
		n, err := r.repair(ctx, h, p, kind, rows[i:i+1], update, args...)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (h *hold) write(ctx context.Context, rows []picked, update string, args []any) ([]picked, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tx, err := h.conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after Commit
	ids := make([]any, len(rows))
	for i, row := range rows {
		ids[i] = row.id
	}
	// index: primary
	free, err := queryAll(ctx, tx, func(rows *sql.Rows, row *rowVersion) error { return rows.Scan(&row.id, &row.revision) },
		`SELECT id, revision FROM outbox_messages WHERE id IN (`+marks(len(ids))+`) AND state = 'published' FOR UPDATE SKIP LOCKED`, ids...)
	if err != nil {
		return nil, fmt.Errorf("lock published messages: %w", err)
	}
	revisions := make(map[int64]int64, len(free))
	for _, row := range free {
		revisions[row.id] = row.revision
	}
	var written []picked
	args = slices.Clone(args)
	for _, row := range rows {
		if revisions[row.id] == row.revision {
			written = append(written, row)
			args = append(args, row.id)
		}
	}
	if len(written) == 0 {
		return nil, nil
	}
	if _, err := tx.ExecContext(ctx, update+" WHERE id IN ("+marks(len(written))+")", args...); err != nil {
		return nil, fmt.Errorf("write published messages: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return written, nil
}
