package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"gorm.io/gorm"
)

// Migration is one of a set, and whether the database has it.
type Migration struct {
	Set     string // Set.Table
	Version int64
	File    string    // empty: this build does not know it
	Applied time.Time // by the clock of whoever applied it; zero: it is pending
}

// Status lists the migrations of each set, and what the database has beside them. It writes nothing and needs no more than SELECT.
func Status(ctx context.Context, db *gorm.DB, sets ...Set) ([]Migration, error) {
	var all []Migration
	for _, set := range sets {
		applied, err := appliedOf(ctx, db, set.Table)
		if err != nil {
			return nil, fmt.Errorf("read the state of %s: %w", set.Table, err)
		}
		provider, err := newProvider(db, set)
		if err != nil {
			return nil, fmt.Errorf("read the migrations of %s: %w", set.Table, err)
		}
		for _, source := range provider.ListSources() {
			all = append(all, Migration{set.Table, source.Version, path.Base(source.Path), applied[source.Version]})
			delete(applied, source.Version)
		}
		var unknown []Migration
		for version, at := range applied {
			unknown = append(unknown, Migration{Set: set.Table, Version: version, Applied: at})
		}
		slices.SortFunc(unknown, func(a, b Migration) int { return int(a.Version - b.Version) })
		all = append(all, unknown...)
	}
	return all, nil
}

func appliedOf(ctx context.Context, db *gorm.DB, table string) (map[int64]time.Time, error) {
	const noSuchTable = 1146 // of MySQL's and MariaDB's error reference
	var rows []struct {
		VersionID int64
		Tstamp    time.Time
	}
	// index: PRIMARY, all of some twenty rows. The table's name is ours.
	err := db.WithContext(ctx).Raw(`SELECT version_id, tstamp FROM ` + table + ` WHERE is_applied AND version_id > 0 ORDER BY id`).Scan(&rows).Error
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == noSuchTable {
		return map[int64]time.Time{}, nil
	}
	applied := make(map[int64]time.Time, len(rows))
	for _, r := range rows {
		applied[r.VersionID] = r.Tstamp
	}
	return applied, err
}

// ErrNothingToTakeBack is what Down returns for a set of which nothing is applied.
var ErrNothingToTakeBack = errors.New("no migration is applied")

// Down takes back the newest migration of a set, with what its table or column holds, and returns its file's name.
func Down(ctx context.Context, db *gorm.DB, set Set) (string, error) {
	provider, err := newProvider(db, set)
	if err != nil {
		return "", fmt.Errorf("take back a migration of %s: %w", set.Table, err)
	}
	result, err := provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		err = ErrNothingToTakeBack
	}
	if err != nil {
		return "", fmt.Errorf("take back a migration of %s: %w", set.Table, err)
	}
	return path.Base(result.Source.Path), nil
}

// newProvider is goose for one set, which lets one process work at a time.
func newProvider(db *gorm.DB, set Set) (*goose.Provider, error) {
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(set.Files, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := newLocker()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectMySQL, pool, files,
		goose.WithTableName(set.Table), goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true))
}
