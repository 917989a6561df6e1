package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoRun says that no such run of the reconciler is on record.
var ErrNoRun = errors.New("outbox: no such run of the reconciler")

// RunKind is what a run of the reconciler did.
type RunKind string

// The kinds of runs.
const (
	RunPass  RunKind = "pass"
	RunAudit RunKind = "audit" // a pass with Scope.Audit
	RunRearm RunKind = "rearm" // Reconciler.Rearm, when there was something to schedule again
	RunPurge RunKind = "purge" // Reconciler.Purge, when there was something to delete
)

// RunState is how far a run of the reconciler has come.
type RunState string

// The states of a run.
const (
	RunRequested  RunState = "requested"
	RunRunning    RunState = "running"
	RunCompleted  RunState = "completed"
	RunIncomplete RunState = "incomplete" // a part had an error, or the process ended
)

// Run is the record of a run of the reconciler.
type Run struct {
	ID          int64
	Kind        RunKind
	State       RunState
	DryRun      bool
	Owner       string // who has run it; empty: nobody yet
	Error       string
	RequestedAt time.Time
	StartedAt   time.Time // zero: not yet
	FinishedAt  time.Time // zero: not yet
	Report      Report    // the zero value until the run has finished
}

func (s Scope) kind() RunKind {
	if s.Audit {
		return RunAudit
	}
	return RunPass
}

// RequestRun asks for a run by whoever calls Reconciler.RunRequested next, and returns its id. While one of the same scope waits
// already, that one's id is returned.
func (s *Store) RequestRun(ctx context.Context, scope Scope) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: by_state (state, kind, dry_run)
	waiting, err := queryIDs(ctx, s.sql, `SELECT id FROM outbox_reconcile_runs
		WHERE state = 'requested' AND kind = ? AND dry_run = ? ORDER BY id LIMIT 1`, string(scope.kind()), scope.DryRun)
	if err == nil && len(waiting) > 0 {
		return waiting[0], nil
	}
	if err != nil {
		return 0, fmt.Errorf("request a run of the reconciler: %w", err)
	}
	res, err := s.sql.ExecContext(ctx, `INSERT INTO outbox_reconcile_runs (kind, state, dry_run, requested_at)
		VALUES (?, 'requested', ?, UTC_TIMESTAMP(6))`, string(scope.kind()), scope.DryRun)
	if err != nil {
		return 0, fmt.Errorf("request a run of the reconciler: %w", err)
	}
	id, err := res.LastInsertId()
	if err != nil {
		return 0, fmt.Errorf("request a run of the reconciler: %w", err)
	}
	return id, nil
}

// LookupRun reads the record of a run; ErrNoRun if there is none, or its retention has ended.
func (s *Store) LookupRun(ctx context.Context, id int64) (Run, error) {
	return s.lookupRun(ctx, "id = ?", id)
}

// LastRun reads the newest completed run of a kind that was no dry run; ErrNoRun if there is none. An audit is a pass as well, and
// so for RunPass it may be that of an audit.
func (s *Store) LastRun(ctx context.Context, kind RunKind) (Run, error) {
	run, err := s.lastRun(ctx, kind)
	if kind != RunPass || err != nil && !errors.Is(err, ErrNoRun) {
		return run, err
	}
	audit, none := s.lastRun(ctx, RunAudit)
	if errors.Is(none, ErrNoRun) || none == nil && audit.FinishedAt.Before(run.FinishedAt) {
		return run, err
	}
	return audit, none
}

func (s *Store) lastRun(ctx context.Context, kind RunKind) (Run, error) {
	// index: by_state (state, kind, dry_run, finished_at)
	return s.lookupRun(ctx, "state = 'completed' AND kind = ? AND dry_run = FALSE ORDER BY finished_at DESC LIMIT 1", string(kind))
}

func (s *Store) lookupRun(ctx context.Context, where string, args ...any) (Run, error) {
	runs, err := s.readRuns(ctx, where, args...)
	if err == nil && len(runs) == 0 {
		err = ErrNoRun
	}
	if err != nil {
		return Run{}, err
	}
	return runs[0], nil
}

// Runs reads the records of runs with ids below before, all if that is 0, the newest first and at most limit of them.
func (s *Store) Runs(ctx context.Context, before int64, limit int) ([]Run, error) {
	// index: primary
	return s.readRuns(ctx, "id < ? ORDER BY id DESC LIMIT ?", beforeOrAll(before), limit)
}

func (s *Store) readRuns(ctx context.Context, where string, args ...any) ([]Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	runs, err := queryAll(ctx, s.sql, func(rows *sql.Rows, r *Run) error {
		var (
			requested, started, finished int64
			report                       []byte
		)
		err := rows.Scan(&r.ID, &r.Kind, &r.State, &r.DryRun, &r.Owner, &r.Error, &report, &requested, &started, &finished)
		if err != nil {
			return err
		}
		r.RequestedAt, r.StartedAt, r.FinishedAt = fromMicros(requested), fromNullable(started), fromNullable(finished)
		if report == nil {
			return nil
		}
		return wrap(fmt.Sprintf("read the report of run %d", r.ID), json.Unmarshal(report, &r.Report))
	}, `SELECT id, kind, state, dry_run, COALESCE(owner, ''), COALESCE(last_error, ''), report,
		`+micros1970("requested_at")+`, COALESCE(`+micros1970("started_at")+`, -1), COALESCE(`+micros1970("finished_at")+`, -1)
		FROM outbox_reconcile_runs WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("look up runs of the reconciler: %w", err)
	}
	return runs, nil
}

// requested is a run that waits to be executed.
type requested struct {
	id    int64
	scope Scope
}

// nextRequested returns the oldest requested pass and the oldest requested audit, of those that there are. It is one statement,
// because a worker asks every two seconds.
func (s *Store) nextRequested(ctx context.Context) ([]requested, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: by_state (state, kind), in both
	next, err := queryAll(ctx, s.sql, func(rows *sql.Rows, r *requested) error {
		return rows.Scan(&r.id, &r.scope.Audit, &r.scope.DryRun)
	}, `(SELECT id, FALSE AS audit, dry_run FROM outbox_reconcile_runs WHERE state = 'requested' AND kind = 'pass' ORDER BY id LIMIT 1)
		UNION ALL
		(SELECT id, TRUE AS audit, dry_run FROM outbox_reconcile_runs WHERE state = 'requested' AND kind = 'audit' ORDER BY id LIMIT 1)`)
	if err != nil {
		return nil, fmt.Errorf("look for requested runs: %w", err)
	}
	return next, nil
}

// begin writes down that a run has begun: as the requested one with this id, or as a new one if id is 0. The caller holds the
// lock of the kind, so who ran before has ended. It returns 0 if another has executed the requested run meanwhile.
func (rc *runConn) begin(ctx context.Context, kind RunKind, dryRun bool, requested int64, owner string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := rc.conn.ExecContext(ctx, `UPDATE outbox_reconcile_runs SET
			state = 'incomplete', finished_at = UTC_TIMESTAMP(6), last_error = 'its process has ended, or lost the database'
		WHERE state = 'running' AND kind = ?`, string(kind)); err != nil {
		return 0, fmt.Errorf("end the record of a run that was cut off: %w", err)
	}
	if requested != 0 {
		n, err := execCount(ctx, rc.conn, `UPDATE outbox_reconcile_runs SET
				state = 'running', owner = ?, started_at = UTC_TIMESTAMP(6)
			WHERE id = ? AND state = 'requested'`, []byte(owner), requested)
		if err != nil {
			return 0, fmt.Errorf("begin run %d: %w", requested, err)
		}
		return requested * n, nil
	}
	res, err := rc.conn.ExecContext(ctx, `INSERT INTO outbox_reconcile_runs
			(kind, state, dry_run, owner, requested_at, started_at)
		VALUES (?, 'running', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`, string(kind), dryRun, []byte(owner))
	if err != nil {
		return 0, fmt.Errorf("begin a run: %w", err)
	}
	return res.LastInsertId()
}

// finish writes down how a run has ended. It outlives ctx, so that a worker that drains leaves a true record.
func (rc *runConn) finish(ctx context.Context, report Report, cause error) error {
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode the report of run %d: %w", report.Run, err)
	}
	state, why := RunCompleted, any(nil)
	if cause != nil {
		state, why = RunIncomplete, strings.ReplaceAll(errorText(cause), "\n", "; ")
	}
	for _, c := range []conn{rc.conn, rc.store.sql} { // the run's own connection may be why it has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
		_, err = c.ExecContext(ctx, `UPDATE outbox_reconcile_runs SET
				state = ?, report = ?, last_error = ?, finished_at = UTC_TIMESTAMP(6)
			WHERE id = ? AND state = 'running'`, string(state), text, why, report.Run)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("write the record of run %d: %w", report.Run, err)
}
