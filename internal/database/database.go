// Package database opens MySQL or MariaDB the way duebox needs it and brings its tables up to date.
package database

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

const (
	dialTimeout = 5 * time.Second
	// Bounds one read or write on a connection; no statement of ours runs longer.
	ioTimeout = 30 * time.Second
	// How long a statement waits for a locked row. Our transactions hold locks for milliseconds, so who waits for longer waits for
	// one that stands still, and occupies a connection and a worker meanwhile.
	lockWait = 3 * time.Second
	// How long a connection may say nothing before the server ends it, and with it the locks of a process that is frozen or has
	// vanished. An effect is given 30 s, which it may spend elsewhere.
	idleLimit = 60 * time.Second
)

// Open returns a handle on the database that dsn (github.com/go-sql-driver/mysql's format) names, after it has answered,
// within ctx. Whatever dsn says, parameters are interpolated by the client (one round trip a statement), text is utf8mb4,
// and every session runs READ COMMITTED with strict SQL mode and autocommit, waits 3 s for a locked row, and is ended by the server after a
// minute of silence. Timeouts that dsn leaves out are set.
//
// The caller closes the handle with its DB().Close.
func Open(ctx context.Context, dsn string) (*gorm.DB, error) { return OpenTLS(ctx, dsn, nil) }

// OpenTLS is Open over connections that are encrypted by encrypt, unless that is nil, whatever dsn says of it.
func OpenTLS(ctx context.Context, dsn string, encrypt *tls.Config) (*gorm.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the database DSN: %w", err) // the driver's text does not repeat the DSN
	}
	if encrypt != nil {
		cfg.TLS, cfg.AllowFallbackToPlaintext = encrypt, false
	}
	cfg.Logger = &mysql.NopLogger{} // what it would print is in the errors that it returns
	cfg.InterpolateParams = true
	cfg.ParseTime = true // goose needs it; our own times never pass through the driver
	collation := cfg.Collation
	if !strings.HasPrefix(collation, "utf8mb4_") {
		collation = "utf8mb4_general_ci" // both servers know it
	}
	if err := cfg.Apply(mysql.Charset("utf8mb4", collation)); err != nil {
		return nil, fmt.Errorf("set the character set: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = dialTimeout
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = ioTimeout
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = ioTimeout
	}
	if _, ok := cfg.Params["timestamp"]; ok {
		return nil, errors.New("the database DSN sets timestamp, which would stop the clock that due times are measured by")
	}
	if cfg.DBName == "" {
		return nil, errors.New("the database DSN names no database")
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("read the database DSN: %w", err)
	}
	pool := sql.OpenDB(session{connector})
	pool.SetMaxOpenConns(50)
	pool.SetMaxIdleConns(50)
	pool.SetConnMaxIdleTime(idleLimit / 2)
	pool.SetConnMaxLifetime(30 * time.Minute) // so that a failover behind a proxy is followed
	if err := pool.PingContext(ctx); err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("connect to the database at %s: %w", cfg.Addr, err)
	}
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), &gorm.Config{
		Logger: logger.Discard, DisableAutomaticPing: true, SkipDefaultTransaction: true,
	})
	if err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("open gorm: %w", err)
	}
	return db, nil
}

// session sets up each new connection. The name of the isolation variable differs between MySQL and MariaDB, and a DSN
// can only set variables; the statement is common to both.
type session struct{ driver.Connector }

func (s session) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	exec, ok := c.(driver.ExecerContext)
	if !ok {
		_ = c.Close()
		return nil, errors.New("the MySQL driver's connection cannot execute statements")
	}
	for _, stmt := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')",
		"SET SESSION autocommit = 1, completion_type = 0",
		fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d, wait_timeout = %d", int(lockWait.Seconds()), int(idleLimit.Seconds())),
	} {
		if _, err := exec.ExecContext(ctx, stmt, nil); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("set up the session: %w", err)
		}
	}
	return c, nil
}
