package outbox

import (
	"database/sql/driver"
	"errors"
	"io"

	"github.com/go-sql-driver/mysql"
)

// Numbers of MySQL's and MariaDB's error reference.
const (
	erBadField           = 1054
	erDupEntry           = 1062
	erTableAccessDenied  = 1142
	erColumnAccessDenied = 1143
	erNoSuchTable        = 1146
	erNoSavepoint        = 1305
	erLockWaitTimeout    = 1205
	erLockDeadlock       = 1213
	erCheckread          = 1020 // MariaDB: record has changed since the snapshot
	erDiskFull           = 1021
	erGetErrno           = 1030 // from the storage engine: no space, mostly
	erRecordFileFull     = 1114
	erServerShutdown     = 1053
	erConnCount          = 1040
	erUserConnCount      = 1203
	erOptionPrevents     = 1290 // read only
	erReadOnlyMode       = 1836
	erQueryInterrupt     = 1317
	erConnKilled         = 1927 // MariaDB
	erIdleTooLong        = 4031 // MySQL, before it closes a connection that has said nothing for wait_timeout
)

func mysqlNumber(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// IsRetryable reports whether err means that the transaction was rolled back through no fault of its own (a deadlock, a
// lock wait timeout, a snapshot that is too old) and should be run again as a whole.
func IsRetryable(err error) bool {
	switch mysqlNumber(err) {
	case erLockDeadlock, erLockWaitTimeout, erCheckread:
		return true
	}
	return false
}

// LacksTable reports whether err says that a table or a column is missing: the schema is older than this program.
func LacksTable(err error) bool {
	n := mysqlNumber(err)
	return n == erNoSuchTable || n == erBadField
}

// IsOutage reports whether err says that the database is away, full or read only rather than that the statement is wrong: the
// same will work when that is over.
func IsOutage(err error) bool {
	switch mysqlNumber(err) {
	case erDiskFull, erGetErrno, erRecordFileFull, erUserConnCount, erServerShutdown, erConnCount, erOptionPrevents, erReadOnlyMode, erQueryInterrupt, erConnKilled, erIdleTooLong:
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
