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

// picked is a row as it was read without a lock.
type picked struct {
	id, revision int64
	topic        string
	available    int64 // microseconds
	overdue      int64 // microseconds since then, by the database's clock
	repairs      int
}

func (p picked) key() int64 { return p.id }

// walk hands over published rows, see walkIn.
func (rc *runConn) walk(ctx context.Context, p *Pass, where string, args []any, do func(rows []picked) error) error {
	return rc.walkIn(ctx, p, Published, where, args, do)
}

// walkIn reads the rows of a state shard by shard in index order by plain SELECT, and hands them over in chunks. The condition may
// only name columns.
func (rc *runConn) walkIn(ctx context.Context, p *Pass, state State, where string, args []any, do func(rows []picked) error) error {
	for shard := range shards {
		for from := (position{}); ; {
			rows, err := rc.pick(ctx, state, shard, from, where, args)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			p.Looked(string(state)+" messages", len(rows))
			last := rows[len(rows)-1]
			from = position{last.available, last.id}
			if err := do(rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (rc *runConn) pick(ctx context.Context, state State, shard int, from position, where string, args []any) ([]picked, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	at := fromMicros(from.available).Format(sqlTime)
	// index: due (state, shard, available_at)
	rows, err := queryAll(ctx, rc.conn, func(rows *sql.Rows, p *picked) error {
		return rows.Scan(&p.id, &p.revision, &p.topic, &p.available, &p.overdue, &p.repairs)
	}, `SELECT id, revision, topic, `+micros1970("available_at")+`,
			TIMESTAMPDIFF(MICROSECOND, available_at, UTC_TIMESTAMP(6)), repairs
		FROM outbox_messages FORCE INDEX (due)
		WHERE state = ? AND shard = ? AND (available_at > ? OR (available_at = ? AND id > ?)) `+where+`
		ORDER BY available_at, id LIMIT ?`, append(append([]any{string(state), shard, at, at, from.id}, args...), repairRows)...)
	if err != nil {
		return nil, fmt.Errorf("read %s messages: %w", state, err)
	}
	return rows, nil
}

// repair writes rows that are still published as they were read, in one transaction, and returns those. What somebody holds locked
// is that one's work and left out. If the rows cannot be written together they are written one by one, and one that
// cannot be written at all is reported as broken and returned as such. A dry run returns all of them as written and writes nothing.
func (r *Reconciler) repair(ctx context.Context, rc *runConn, p *Pass, rows []picked, update string, args ...any) (written, broken []picked, err error) {
	if len(rows) == 0 || p.DryRun() {
		return rows, nil, nil
	}
	written, err = rc.write(ctx, rows, update, args)
	if err == nil || ctx.Err() != nil || isOthersFault(err) {
		return written, nil, err
	}
	for _, row := range rows {
		one, err := rc.write(ctx, []picked{row}, update, args)
		switch {
		case err == nil:
			written = append(written, one...)
		case ctx.Err() != nil || isOthersFault(err):
			return written, broken, err
		case !IsRetryable(err): // a retryable one is busy after all
			broken = append(broken, row)
			p.Found(FoundBroken, strconv.FormatInt(row.id, 10), false)
			r.cfg.Log.LogAttrs(ctx, slog.LevelError, "message cannot be scheduled again", slog.Int64("id", row.id), slog.Any("error", err))
		}
	}
	return written, broken, nil
}

// isOthersFault tells an error that every row would meet from one that may be this row's.
func isOthersFault(err error) bool {
	switch mysqlNumber(err) {
	case erTableAccessDenied, erColumnAccessDenied, erNoSuchTable, erBadField:
		return true
	}
	return IsOutage(err) || errors.Is(err, context.DeadlineExceeded)
}

func (rc *runConn) write(ctx context.Context, rows []picked, update string, args []any) ([]picked, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tx, err := rc.conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after Commit
	revisions, err := rc.versions(ctx, tx, rows, " FOR UPDATE SKIP LOCKED")
	if err != nil {
		return nil, fmt.Errorf("lock published messages: %w", err)
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

// versions returns the revisions of those rows that are published, by id.
func (rc *runConn) versions(ctx context.Context, c conn, rows []picked, lock string) (map[int64]int64, error) {
	ids := make([]any, len(rows))
	for i, row := range rows {
		ids[i] = row.id
	}
	// index: primary
	found, err := queryAll(ctx, c, func(rows *sql.Rows, row *rowVersion) error { return rows.Scan(&row.id, &row.revision) },
		`SELECT id, revision FROM outbox_messages WHERE id IN (`+marks(len(ids))+`) AND state = 'published'`+lock, ids...)
	revisions := make(map[int64]int64, len(found))
	for _, row := range found {
		revisions[row.id] = row.revision
	}
	return revisions, err
}
