package ordering

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// errAgain says that another transaction got in between what was read and what was to be written.
var errAgain = errors.New("ordering: lost a race")

const maxReruns = 30

// run executes one operation within the service's deadline, from the start again while it loses races and deadlocks, and
// returns what that means for the caller: an error of package model, model.ErrUnavailable when the database did not answer, or a
// fault that only a programmer can mend.
func run[T any](ctx context.Context, s *Service, what string, op func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Deadline)
	defer cancel()
	for rerun := 0; ; rerun++ {
		result, err := op(ctx)
		lost := errors.Is(err, errAgain) || outbox.IsRetryable(err)
		switch {
		case err == nil:
			return result, nil
		case lost && rerun < maxReruns && pause(ctx, rerun):
			continue
		case lost || isOutage(err):
			err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
		}
		var none T
		return none, fmt.Errorf("%s: %w", what, err)
	}
}

// pause waits a random time that grows with each rerun, at most 50 ms; false when ctx has ended.
func pause(ctx context.Context, rerun int) bool {
	longest := min(time.Duration(rerun+1)*2*time.Millisecond, 50*time.Millisecond)
	timer := time.NewTimer(rand.N(longest)) //nolint:gosec // spreads load, guards nothing
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// tx runs fn in a transaction and commits if it returns nil.
func (s *Service) tx(ctx context.Context, fn func(tx *gorm.DB) error) error {
	return s.db.WithContext(ctx).Transaction(fn)
}

// change executes a statement that must change a row, and reports whether it did.
func change(tx *gorm.DB, statement string, args ...any) (bool, error) {
	res, err := exec(tx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// exec executes a statement of a transaction past gorm's builder, which has nothing to do for it. No argument is a list.
func exec(tx *gorm.DB, statement string, args ...any) (sql.Result, error) {
	return tx.Statement.ConnPool.ExecContext(tx.Statement.Context, statement, args...)
}

// isDuplicate reports whether err is MySQL's ER_DUP_ENTRY.
func isDuplicate(err error) bool { return hasNumber(err, 1062) }

// isLockWait reports whether err is MySQL's ER_LOCK_WAIT_TIMEOUT.
func isLockWait(err error) bool { return hasNumber(err, 1205) }

func hasNumber(err error, number uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == number
}

// isOutage reports whether err says that the database did not answer, or cannot for now.
func isOutage(err error) bool {
	var network net.Error
	return outbox.IsOutage(err) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)
}
