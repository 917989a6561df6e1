package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

const (
	// The server ends a connection that says nothing for so long, and with it frees the locks of a process that has vanished.
	connIdle = 60 * time.Second
	connPing = 15 * time.Second
)

// runConn is the connection of a run, with locks of the database server. The locks save double work; correctness does not need them.
type runConn struct {
	store *Store
	conn  *sql.Conn
}

// withConn gives fn a connection of its own and closes it afterwards, which frees what fn has locked.
func (r *Reconciler) withConn(ctx context.Context, fn func(ctx context.Context, rc *runConn) error) error {
	opening, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	conn, err := r.store.sql.Conn(opening)
	if err != nil {
		return fmt.Errorf("open the reconciler's connection: %w", err)
	}
	// Closed for good: its settings must not reach the pool's other users.
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	for _, set := range []string{
		fmt.Sprintf("SET SESSION wait_timeout = %d", int(connIdle.Seconds())),
		"SET SESSION innodb_lock_wait_timeout = 1",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
	} {
		if _, err := conn.ExecContext(opening, set); err != nil {
			return fmt.Errorf("set up the reconciler's connection: %w", err)
		}
	}
	return fn(ctx, &runConn{r.store, conn})
}

// The lock's name holds the schema: the server has one set of names for all. It takes 64 characters.
const lockName = "CONCAT('duebox.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32))"

// lock takes the lock of a kind of run, if nobody has it.
func (rc *runConn) lock(ctx context.Context, kind RunKind) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var got sql.NullInt64
	if err := rc.conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", 0)", string(kind)).Scan(&got); err != nil {
		return false, fmt.Errorf("lock the run: %w", err)
	}
	return got.Int64 == 1, nil
}

// unlock gives a lock back. If that goes wrong, closing the connection does it.
func (rc *runConn) unlock(ctx context.Context, kind RunKind) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	_, _ = rc.conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")", string(kind))
}

// during runs fn, which does not use the connection, and keeps the connection alive meanwhile. When it is lost, and the locks with
// it, the context of fn ends.
func (rc *runConn) during(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		for sleep(ctx, connPing) == nil {
			ping, stop := context.WithTimeout(ctx, statementTimeout)
			err := rc.conn.PingContext(ping)
			stop()
			if err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("the reconciler's connection was lost: %w", err))
			}
		}
	}()
	err := fn(ctx)
	lost := context.Cause(ctx)
	cancel(nil)
	<-pinging
	if err != nil && lost != nil && !errors.Is(err, lost) {
		err = fmt.Errorf("%w (%w)", err, lost)
	}
	return err
}
