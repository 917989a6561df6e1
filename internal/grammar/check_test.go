package grammar_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/grammar"
)

// fewestDistinct is the number of distinct statements below which the log is not that of the whole suite.
const fewestDistinct = 50

// TestSuite_SentOnlyWhatMySQL8Accepts reads the general log that the suite has left.
func TestSuite_SentOnlyWhatMySQL8Accepts(t *testing.T) {
	t.Parallel()
	path := os.Getenv("GENERAL_LOG")
	require.NotEmpty(t, path, "GENERAL_LOG names no log; run: make test")
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	report, err := grammar.CheckLog(file)
	require.NoError(t, err)
	t.Logf("%d statements, %d of them distinct", report.Statements, report.Distinct)
	require.GreaterOrEqual(t, report.Distinct, fewestDistinct)
	for _, refused := range report.Refused {
		t.Errorf("%v: %.1000s", refused.Err, refused.Statement)
	}
}

func TestCheckLog_RefusesWhatIsMariaDBsAlone(t *testing.T) {
	t.Parallel()
	statements := []string{
		"INSERT INTO t (a) VALUES (1) RETURNING id",
		"REPLACE INTO t (a) VALUES (1) RETURNING id",
		"DELETE FROM t WHERE a = 1 RETURNING id",
		"CREATE SEQUENCE s",
		"SELECT NEXT VALUE FOR s",
		"SELECT PREVIOUS VALUE FOR s",
		"SELECT NEXTVAL(s)",
		"INSERT INTO t (a) SELECT seq FROM seq_1_to_100",
		"CREATE TABLE t (a INT) WITH SYSTEM VERSIONING",
		"ALTER TABLE t ADD SYSTEM VERSIONING",
		"SELECT * FROM t FOR SYSTEM_TIME AS OF '2026-01-01'",
		"CREATE TABLE t (s DATE, e DATE, PERIOD FOR p (s, e))",
		"DELETE FROM t FOR PORTION OF p FROM '2026-01-01' TO '2026-02-01'",
		"ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT",
		"ALTER TABLE t DROP COLUMN IF EXISTS c",
		"ALTER TABLE t ADD INDEX IF NOT EXISTS i (a)",
		"ALTER TABLE IF EXISTS t ADD COLUMN c INT",
		"CREATE INDEX IF NOT EXISTS i ON t (a)",
		"DROP INDEX IF EXISTS i ON t",
		"CREATE OR REPLACE TABLE t (a INT)",
		"RENAME TABLE IF EXISTS a TO b",
		"DROP TABLE t WAIT 5",
		"ALTER TABLE t NOWAIT ADD COLUMN c INT",
		"SELECT * FROM t FOR UPDATE WAIT 5",
		"SET STATEMENT max_statement_time = 1 FOR SELECT 1",
		"SET SESSION max_statement_time = 1",
		"SET SESSION tx_isolation = 'READ-COMMITTED'",
		"SELECT @@tx_isolation",
		"SELECT * FROM t LIMIT 5 ROWS EXAMINED 100",
		"SELECT * FROM t ORDER BY a OFFSET 5 ROWS FETCH NEXT 5 ROWS ONLY",
		"SELECT GROUP_CONCAT(a LIMIT 1) FROM t",
		"SELECT JSON_DETAILED(a) FROM t",
		"INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUE(a)",
		"CREATE TABLE t (a UUID)",
		"CREATE TABLE t (a INET6)",
		"CREATE TABLE t (a TEXT COMPRESSED)",
		"CREATE TABLE t (a CHAR(36) DEFAULT UUID())",
		"CREATE TABLE t (a INT, b INT AS (a + 1) PERSISTENT)",
		"CREATE TABLE t (a INT) ENGINE=Aria",
		"CREATE TABLE t (a VARCHAR(10)) COLLATE utf8mb4_uca1400_ai_ci",
		"ALTER TABLE t ALTER INDEX i IGNORED",
		"BEGIN NOT ATOMIC SELECT 1; END",
		"EXECUTE IMMEDIATE 'SELECT 1'",
		"ANALYZE FORMAT=JSON SELECT * FROM t",
		"SHOW EXPLAIN FOR 1",
		"KILL SOFT QUERY 5",
		"SELECT /*M! 1, */ 2",
		"SELECT /*!100500 1, */ 2",
	}
	require.Equal(t, statements, refusedOf(t, statements...))
}

func TestCheckLog_RefusesReservedWordsAsNames(t *testing.T) {
	t.Parallel()
	statements := []string{
		"SELECT rank FROM t",
		"SELECT 1 AS row_number",
		"SELECT `groups` FROM t",
		"SELECT system FROM t",
		"SELECT t.key FROM t",
		"CREATE TABLE manual (a INT)",
		"CREATE TABLE t (`lateral` INT)",
		"CREATE TABLE t (a INT, KEY `qualify` (a))",
		"UPDATE t AS parallel SET a = 1",
	}
	require.Equal(t, statements, refusedOf(t, statements...))
}

func TestCheckLog_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	statements := []string{
		"SELEC 1",
		"SELECT 1 FROM",
		"DELETE FROM t WHERE a = 1; DELETE FROM t",
		"CREATE TABLE t (a INT,)",
		"ALTER TABLE t GARBAGE",
		"DO RELEASE_LOCK('a'",
		"OPTIMIZE TABLE t garbage",
		"VEXPLAIN PLAN SELECT 1",
	}
	require.Equal(t, statements, refusedOf(t, statements...))
}

func TestCheckLog_PassesWhatBothHave(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET NAMES utf8mb4",
		"SET innodb_lock_wait_timeout=1",
		"START TRANSACTION",
		"SAVEPOINT a",
		"ROLLBACK TO SAVEPOINT a",
		"SELECT GET_LOCK('a', 5)",
		"DO RELEASE_LOCK('a')",
		"EXPLAIN FORMAT=JSON SELECT 1",
		"ANALYZE TABLE t",
		"SHOW TABLES",
		"SELECT IF(a, LEFT(b, 1), REPLACE(c, 'x', 'y')) FROM t",
		"SELECT 'RETURNING', `returning` FROM t WHERE k <=> NULL FOR UPDATE SKIP LOCKED",
		"(SELECT a FROM t ORDER BY a LIMIT 1) UNION ALL (SELECT b FROM t ORDER BY b LIMIT 2)",
		"WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n",
		"INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON DUPLICATE KEY UPDATE a = VALUES(a)",
		"INSERT IGNORE INTO t (a) VALUES (_binary'\\0''')",
		"CREATE TABLE t (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, k VARBINARY(191) NULL, d DATETIME(6) NOT NULL, " +
			"UNIQUE KEY u (k), KEY x (d, id), CHECK (id > 0)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC",
		"ALTER TABLE t ADD COLUMN c INT, ALGORITHM=INPLACE, LOCK=NONE",
		"CREATE UNIQUE INDEX i ON t (a)",
		"DROP INDEX i ON t",
	} {
		require.Empty(t, check(t, logOf(statement)).Refused)
	}
}

func TestCheckLog_CountsStatementsThatDifferInMoreThanLiterals(t *testing.T) {
	t.Parallel()
	report := check(t, logOf(
		"CREATE DATABASE `a1`", "DROP DATABASE IF EXISTS `a1`",

		"SELECT a FROM t WHERE b = 1",
		"SELECT a  FROM t\n WHERE b = 'it''s \\' 2'",

		"INSERT INTO t VALUES (3, 'c', NOW(6))",

		"INSERT INTO t VALUES (1,'a', NOW(6)), (2,NULL, NOW(6))",
		"INSERT INTO t VALUES (1,'a', NOW(6)), (2,_binary'(\\\\', NOW(6)),(3,\"c\", NOW(6))",

		"SELECT a1 FROM t1 WHERE b IN (1, 2, 3)",
		"SELECT a1 FROM t1 WHERE b IN (4.5, x'00')",

		"SELECT a2 FROM t1",

		"(SELECT a FROM t WHERE s = 0 LIMIT 5) UNION ALL (SELECT a FROM t WHERE s = 1 LIMIT 5)",
		"(SELECT a FROM t WHERE s = 0 LIMIT 5)\nUNION ALL (SELECT a FROM t WHERE s = 1 LIMIT 5) UNION ALL (SELECT a FROM t WHERE s = 2 LIMIT 5)",
	))
	require.Equal(t, 10, report.Statements)
	require.Equal(t, 6, report.Distinct)
}

func TestCheckLog_ReadsTheServersFormat(t *testing.T) {
	t.Parallel()
	const log = "/usr/sbin/mariadbd, Version: 10.11.14-MariaDB (Debian). started with:\n" +
		"Tcp port: 20017  Unix socket: /x/s.sock\n" +
		"Time\t\t    Id Command\tArgument\n" +
		"261130 17:06:00\t     3 Connect\troot@localhost on  using TCP/IP\n" +
		"\t\t     3 Query\tSELECT a\n\n\tFROM t\n\t\tWHERE b = 1\n" +
		"261130  7:06:01\t123456 Prepare\tSELECT a FROM t RETURNING ?\n" +
		"\t\t123456 Execute\tSELECT a FROM t WHERE c = 1\n" +
		"\t\t123456 Close stmt\t\n" +
		"\t\t     3 Init DB\tnot a statement\n" +
		"\t\t     3 Query\tSELEC 1\n" +
		"\t\t     3 Quit\t\n"
	report := check(t, log)
	require.Equal(t, 4, report.Statements)
	require.Len(t, report.Refused, 2)
	require.Equal(t, "SELECT a FROM t RETURNING ?", report.Refused[0].Statement)
	require.Equal(t, "SELEC 1", report.Refused[1].Statement)
}

func check(t *testing.T, log string) grammar.Report {
	t.Helper()
	report, err := grammar.CheckLog(strings.NewReader(log))
	require.NoError(t, err)
	return report
}

// refusedOf returns those of the statements that are refused. Each is checked in a log of its own.
func refusedOf(t *testing.T, statements ...string) []string {
	t.Helper()
	var refused []string
	for _, statement := range statements {
		for _, refusal := range check(t, logOf(statement)).Refused {
			refused = append(refused, refusal.Statement)
		}
	}
	return refused
}

// logOf is a general log with the statements in it.
func logOf(statements ...string) string {
	var b strings.Builder
	for _, statement := range statements {
		fmt.Fprintf(&b, "\t\t     3 Query\t%s\n", statement)
	}
	return b.String()
}
