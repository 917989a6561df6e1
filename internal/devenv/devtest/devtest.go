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

func setting(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; run: make test", name)
	}
	return value
}

// name is random, lower-case and valid everywhere.
func name() string { return strings.ToLower(rand.Text()[:10]) }

// Database creates an empty database on the shared server and returns its DSN.
// Each call makes another one; it is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	return database(t, setting(t, "MYSQL_DSN"))
}

func database(t testing.TB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.DBName = "t_" + name()
	admin := Open(t, dsn)
	_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+config.DBName)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		_, err := admin.ExecContext(ctx, "DROP DATABASE IF EXISTS "+config.DBName)
		if err != nil {
			t.Errorf("drop %s: %v", config.DBName, err)
		}
	})
	return config.FormatDSN()
}

// Open opens dsn and closes it when the test ends. It does no I/O.
func Open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	// Every error is returned too; a killed server would fill the output.
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// OpenGorm opens dsn with gorm, silent, and closes it when the test ends.
func OpenGorm(t testing.TB, dsn string) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: Open(t, dsn), DSN: dsn}), &gorm.Config{
		Logger: logger.Discard,
	})
	require.NoError(t, err)
	return db
}

// DB is a new Database, opened.
func DB(t testing.TB) *sql.DB {
	t.Helper()
	return Open(t, Database(t))
}

// Gorm is a new Database, opened with gorm. Its DB method gives the same
// database as *sql.DB.
func Gorm(t testing.TB) *gorm.DB {
	t.Helper()
	return OpenGorm(t, Database(t))
}
