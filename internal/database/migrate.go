package database

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3/lock"
	"gorm.io/gorm"
)

// Set is one part's migrations: files migrations/*.sql in goose's format.
type Set struct {
	Table string // where goose keeps this set's version
	Files fs.FS
}

// Migrate brings the database up to the newest version of each set, in order. Any number of processes may call it at
// once: a lock row lets one work at a time and hands over 10 s after its holder dies. A process that dies between any two
// statements leaves a database that the next call completes.
func Migrate(ctx context.Context, db *gorm.DB, sets ...Set) error {
	for _, set := range sets {
		if err := migrate(ctx, db, set); err != nil {
			return fmt.Errorf("migrate %s: %w", set.Table, err)
		}
	}
	return nil
}

func migrate(ctx context.Context, db *gorm.DB, set Set) error {
	provider, err := newProvider(db, set)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func newLocker() (lock.Locker, error) {
	return lock.NewMySQLTableLocker(
		lock.WithTableLockTimeout(200*time.Millisecond, 1500), // 5 min
		lock.WithTableLeaseDuration(10*time.Second),
		lock.WithTableHeartbeatInterval(2*time.Second),
	)
}
