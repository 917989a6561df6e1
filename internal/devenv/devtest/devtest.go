// Package devtest gives tests their database, their names on the broker, and
// services of their own where a test kills or wipes them.
//
// The shared services are found in MYSQL_DSN and AMQP_URL, which `make test`
// sets. Nothing here skips: a test that needs a service which is not there
// fails and says how to run it. Everything is undone in the test's cleanup.
package devtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// cleanupLimit bounds what a cleanup does over the network.
const cleanupLimit = 30 * time.Second

func setting(tb testing.TB, name string) string {
	tb.Helper()
	value := os.Getenv(name)
	if value == "" {
		tb.Fatalf("%s is not set; run: make test", name)
	}
	return value
}

// name is random, lower-case and valid everywhere.
func name() string { return strings.ToLower(rand.Text()[:10]) }

// Database creates an empty database on the shared server and returns its DSN.
// Each call makes another one; it is dropped when the test ends.
func Database(tb testing.TB) string {
	tb.Helper()
	return database(tb, setting(tb, "MYSQL_DSN"))
}

func database(tb testing.TB, dsn string) string {
	tb.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(tb, err)
	config.DBName = "t_" + name()
	admin := Open(tb, dsn)
	_, err = admin.ExecContext(tb.Context(), "CREATE DATABASE "+config.DBName)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		_, err := admin.ExecContext(ctx, "DROP DATABASE IF EXISTS "+config.DBName)
		if err != nil {
			tb.Errorf("drop %s: %v", config.DBName, err)
		}
	})
	return config.FormatDSN()
}

// Open opens dsn and closes it when the test ends. It does no I/O.
func Open(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(tb, err)
	// Every error is returned too; a killed server would fill the output.
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	require.NoError(tb, err)
	db := sql.OpenDB(connector)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// OpenGorm opens dsn with gorm, silent, and closes it when the test ends.
func OpenGorm(tb testing.TB, dsn string) *gorm.DB {
	tb.Helper()
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: Open(tb, dsn), DSN: dsn}), &gorm.Config{
		Logger: logger.Discard,
	})
	require.NoError(tb, err)
	return db
}

// DB is a new Database, opened.
func DB(tb testing.TB) *sql.DB {
	tb.Helper()
	return Open(tb, Database(tb))
}

// Gorm is a new Database, opened with gorm. Its DB method gives the same
// database as *sql.DB.
func Gorm(tb testing.TB) *gorm.DB {
	tb.Helper()
	return OpenGorm(tb, Database(tb))
}
