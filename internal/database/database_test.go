package database_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

// starterDSN makes this test binary a process that only migrates.
const starterDSN = "DUEBOX_TEST_STARTER_DSN"

func sets() []database.Set {
	return []database.Set{{Table: "goose_outbox", Files: outbox.Migrations}, {Table: "goose_orders", Files: ordering.Migrations}}
}

func TestMain(m *testing.M) {
	if dsn := os.Getenv(starterDSN); dsn != "" {
		os.Exit(starter(dsn))
	}
	goleak.VerifyTestMain(m)
}

func starter(dsn string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := database.Open(ctx, dsn)
	if err == nil {
		err = database.Migrate(ctx, db, sets()...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startStarter(t *testing.T, dsn string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), starterDSN+"="+dsn)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd
}

func open(t *testing.T, dsn string) *gorm.DB {
	t.Helper()
	db, err := database.Open(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool, err := db.DB()
		require.NoError(t, err)
		require.NoError(t, pool.Close())
	})
	return db
}

// schema is every table as the server shows it.
func schema(t *testing.T, db *gorm.DB) map[string]string {
	t.Helper()
	var tables []string
	require.NoError(t, db.Raw("SHOW TABLES").Scan(&tables).Error)
	out := map[string]string{}
	for _, table := range tables {
		var row struct{ Table, CreateTable string }
		require.NoError(t, db.Raw("SHOW CREATE TABLE `"+table+"`").Row().Scan(&row.Table, &row.CreateTable))
		definition, _, _ := strings.Cut(row.CreateTable, "AUTO_INCREMENT=")
		if !strings.HasPrefix(table, "goose") {
			out[table] = definition
		}
	}
	return out
}

func migrated(t *testing.T) map[string]string {
	t.Helper()
	db := open(t, devtest.Database(t))
	require.NoError(t, database.Migrate(t.Context(), db, sets()...))
	s := schema(t, db)
	require.Contains(t, s, "outbox_messages")
	require.Contains(t, s, "orders")
	return s
}

func TestMigrate_SixStartersAtOnce(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	var wg sync.WaitGroup
	for range 6 {
		cmd := startStarter(t, dsn)
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("a starter: %v", err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, migrated(t), schema(t, open(t, dsn)))
}

// A starter that dies after a statement and before its version is noted leaves a database that the next one completes. It is
// cut between any two statements: the first n are run by hand, the first n-1 are noted.
func TestMigrate_CompletesWhatADeadStarterLeft(t *testing.T) {
	t.Parallel()
	want := migrated(t)
	for _, set := range sets() {
		names, err := fs.Glob(set.Files, "migrations/*.sql")
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for n := range names {
			db := open(t, devtest.Database(t))
			if n > 0 {
				require.NoError(t, database.Migrate(t.Context(), db, database.Set{Table: set.Table, Files: first(t, set.Files, names[:n])}))
			}
			require.NoError(t, db.Exec(up(t, set.Files, names[n])).Error)
			require.NoError(t, database.Migrate(t.Context(), db, sets()...), names[n])
			require.Equal(t, want, schema(t, db), names[n])
		}
	}
}

func first(t *testing.T, files fs.FS, names []string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		out[name] = &fstest.MapFile{Data: data}
	}
	return out
}

func up(t *testing.T, files fs.FS, name string) string {
	t.Helper()
	data, err := fs.ReadFile(files, name)
	require.NoError(t, err)
	body, _, ok := strings.Cut(string(data), "-- +goose Down")
	require.True(t, ok, name)
	body = strings.Replace(body, "-- +goose Up", "", 1)
	require.Equal(t, 1, strings.Count(body, ";\n"), "%s must be one statement", name)
	return strings.TrimSuffix(strings.TrimSpace(body), ";")
}

func TestMigrate_HandsOverWhenAStarterIsKilled(t *testing.T) {
	t.Parallel()
	want := migrated(t)
	for i := range 4 {
		t.Run(fmt.Sprint("killed after ", i, " tables"), func(t *testing.T) {
			t.Parallel()
			dsn := devtest.Database(t)
			db := open(t, dsn)
			victim := startStarter(t, dsn)
			require.Eventually(t, func() bool { return len(schema(t, db)) >= i }, 20*time.Second, time.Millisecond)
			require.NoError(t, victim.Process.Kill())
			_ = victim.Wait()
			require.NoError(t, database.Migrate(t.Context(), db, sets()...))
			require.Equal(t, want, schema(t, db))
		})
	}
}

func TestOpen_SetsUpEverySession(t *testing.T) {
	t.Parallel()
	for _, add := range []string{
		"", "&charset=latin1", "&collation=latin1_swedish_ci", "&parseTime=false&interpolateParams=false", "&autocommit=0", "&completion_type=1",
		"&wait_timeout=28800&innodb_lock_wait_timeout=50",
	} {
		t.Run(add, func(t *testing.T) {
			t.Parallel()
			requireSession(t, open(t, devtest.Database(t)+add))
		})
	}
}

func requireSession(t *testing.T, db *gorm.DB) {
	t.Helper()
	require.NoError(t, db.Exec("CREATE TABLE kept (id INT PRIMARY KEY)").Error)
	require.NoError(t, db.Exec("INSERT INTO kept VALUES (1)").Error)
	require.NoError(t, db.Exec("ROLLBACK").Error)
	var kept int
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM kept").Scan(&kept).Error)
	require.Equal(t, 1, kept, "a statement of its own commits")

	tx := db.Begin()
	defer tx.Rollback()
	var name, isolation string // MySQL 8 and MariaDB call it differently
	require.NoError(t, tx.Raw("SHOW VARIABLES LIKE 't%_isolation'").Row().Scan(&name, &isolation))
	require.Equal(t, "READ-COMMITTED", isolation)
	var lockWait, idle int
	require.NoError(t, tx.Raw("SELECT @@innodb_lock_wait_timeout, @@wait_timeout").Row().Scan(&lockWait, &idle))
	require.Equal(t, []int{3, 60}, []int{lockWait, idle}, "nobody waits for, or keeps, a lock for long")
	require.NoError(t, tx.Exec("CREATE TEMPORARY TABLE narrow (c VARCHAR(2)) DEFAULT CHARSET=utf8mb4").Error)
	require.Error(t, tx.Exec("INSERT INTO narrow VALUES ('abc')").Error, "strict: nothing is cut silently")
	require.NoError(t, tx.Exec("INSERT INTO narrow VALUES (?)", "😀").Error)
	var back string
	require.NoError(t, tx.Raw("SELECT c FROM narrow").Scan(&back).Error)
	require.Equal(t, "😀", back)
}

func TestOpen_SaysWhatIsWrongWithoutTheSecret(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for name, dsn := range map[string]string{
		"invalid DSN": "root:hunter2@tcp(127.0.0.1:3306", "sets timestamp": "root:hunter2@tcp(127.0.0.1:1)/x?timestamp=1", "names no database": "root:hunter2@tcp(127.0.0.1:1)/", "127.0.0.1:1": "root:hunter2@tcp(127.0.0.1:1)/x",
	} {
		_, err := database.Open(ctx, dsn)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
