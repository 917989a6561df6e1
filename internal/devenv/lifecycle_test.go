package devenv_test

import (
	"bufio"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

func TestServices_EndWithAnOwnerThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner := child(t, "owner", dir)
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	require.GreaterOrEqual(t, len(processesOf(t, dir)), 6, "owner, two keepers, mariadbd, epmd, beam")

	require.NoError(t, owner.Process.Kill())
	require.Error(t, owner.Wait())

	require.Eventually(t, func() bool {
		return len(processesOf(t, dir)) == 0 && empty(t, dir)
	}, patience, 50*time.Millisecond)
}

func TestServices_LeaveNothingOfAnInterruptedStart(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(context.Context, string) error{
		"MariaDB": func(ctx context.Context, dir string) error {
			_, err := devenv.StartMariaDB(ctx, devenv.Config{Dir: dir})
			return err
		},
		"RabbitMQ": func(ctx context.Context, dir string) error {
			_, err := devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Dir: dir})
			return err
		},
	} {
		for _, limit := range []time.Duration{0, 150 * time.Millisecond, 600 * time.Millisecond} {
			t.Run(name+" after "+limit.String(), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				require.ErrorIs(t, start(ctx, dir), context.DeadlineExceeded)
				// What was killed is gone once the system has reaped it.
				require.Eventually(t, func() bool {
					return len(processesOf(t, dir)) == 0 && empty(t, dir)
				}, patience, 10*time.Millisecond)
			})
		}
	}
}

func TestMissing_NamesTheProgramAndTheCure(t *testing.T) {
	t.Parallel()
	// A process of its own, because PATH is the whole process's.
	cmd := child(t, "owner", t.TempDir())
	cmd.Env = append(cmd.Env, "PATH=/nonexistent")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, "devenv: .* is not installed; run: sudo scripts/setup.sh", string(out))
}

func TestMariaDB_KeepsWhatIsCommitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := devenv.StartMariaDB(t.Context(), devenv.Config{Dir: dir, BufferPool: 16 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	port := server.Port()
	require.Less(t, port, 32768)
	db := devtest.Open(t, server.DSN("test"))
	_, err = db.ExecContext(t.Context(), "CREATE TABLE kept (id INT PRIMARY KEY)")
	require.NoError(t, err)

	for round, end := range map[int]func() error{
		1: server.Kill,
		2: func() error { return server.Stop(t.Context()) },
	} {
		_, err = db.ExecContext(t.Context(), "INSERT INTO kept VALUES (?)", round)
		require.NoError(t, err)
		require.NoError(t, end())
		require.Zero(t, server.PID())
		require.Error(t, db.PingContext(t.Context()))
		require.NoError(t, server.Start(t.Context()))
		require.Equal(t, port, server.Port())
		require.Error(t, server.Start(t.Context()), "it runs already")
	}
	require.Equal(t, 2, count(t, db, "SELECT COUNT(*) FROM kept"))

	require.NoError(t, server.Wipe())
	require.NoError(t, server.Start(t.Context()))
	require.Zero(t, count(t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'test'"))

	require.NoError(t, server.Close())
	require.NoError(t, server.Close(), "once more is no error")
	require.Empty(t, processesOf(t, dir))
	require.True(t, empty(t, dir))
}

func TestMariaDB_AdmitsOnlyItsOwner(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "general.log")
	server, err := devenv.StartMariaDB(t.Context(), devenv.Config{BufferPool: 16 << 20, GeneralLog: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	db := devtest.Open(t, server.DSN(""))

	for setting, want := range map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"max_connections":                "1000",
		"tx_isolation":                   "REPEATABLE-READ",
		"bind_address":                   "127.0.0.1",
		"character_set_server":           "utf8mb4",
	} {
		var name, value string
		require.NoError(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL VARIABLES LIKE ?", setting).Scan(&name, &value))
		require.Equal(t, want, value, setting)
	}
	require.Zero(t, count(t, db, "SELECT COUNT(*) FROM mysql.user WHERE user <> 'mariadb.sys' AND (user <> 'root' OR host <> '127.0.0.1')"))
	stranger := devtest.Open(t, "root@tcp(127.0.0.1:"+portOf(server)+")/")
	require.ErrorContains(t, stranger.PingContext(t.Context()), "Access denied")

	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(text), "SHOW GLOBAL VARIABLES LIKE 'max_connections'")
}

func TestRabbitMQ_ComesBackAfterEveryEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker, err := devenv.StartRabbitMQ(t.Context(), devenv.RabbitConfig{Dir: dir, Plugin: devenv.ExchangeNone})
	require.NoError(t, err)
	t.Cleanup(func() { _ = broker.Close() })
	require.Equal(t, devenv.ExchangeNone, broker.Exchange())
	require.ErrorContains(t, broker.SetStuck(t.Context(), true), "only the stand-in")
	url := broker.URL()

	ch := channel(t, devtest.Dial(t, url))
	_, err = ch.QueueDeclare("kept", true, false, false, false, nil)
	require.NoError(t, err)
	err = ch.ExchangeDeclare("absent", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "direct"})
	requireCode(t, err, amqp.CommandInvalid)

	// The broker confirms a durable queue before its log is on the disk: a kill within moments may lose it.
	synced, err := broker.Eval(t.Context(), "mnesia:sync_log().")
	require.NoError(t, err)
	require.Equal(t, "ok", synced)
	require.NoError(t, broker.Kill())
	require.Zero(t, broker.PID())
	require.NoError(t, broker.Start(t.Context()))
	require.True(t, has(t, url, "kept"))

	require.NoError(t, broker.Pause())
	frozen := make(chan error, 1)
	go func() {
		conn, err := amqp.Dial(url)
		if err == nil {
			err = conn.Close()
		}
		frozen <- err
	}()
	require.Never(t, func() bool { return len(frozen) > 0 }, 500*time.Millisecond, 50*time.Millisecond)
	require.NoError(t, broker.Resume())
	require.NoError(t, <-frozen)

	out, err := broker.Ctl(t.Context(), "list_queues", "name")
	require.NoError(t, err)
	require.Contains(t, string(out), "kept")
	_, err = broker.Ctl(t.Context(), "no_such_command")
	require.Error(t, err)
	value, err := broker.Eval(t.Context(), "X = 1, {X + 1, node()}.")
	require.NoError(t, err)
	require.Equal(t, "{2, 'duebox-"+portOf(broker)+"@localhost'}", value)
	_, err = broker.Eval(t.Context(), "exit(no).")
	require.ErrorContains(t, err, "no")

	require.NoError(t, broker.Wipe())
	require.NoError(t, broker.Start(t.Context()))
	require.False(t, has(t, url, "kept"))

	require.NoError(t, broker.Stop(t.Context()))
	require.Len(t, processesOf(t, dir), 1, "the keeper")
	require.NoError(t, broker.Close())
	require.Empty(t, processesOf(t, dir))
	require.True(t, empty(t, dir))
}

func empty(t *testing.T, dir string) bool {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	return len(left) == 0
}

func count(t *testing.T, db *sql.DB, query string) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestTakePorts_GivesNobodyTheSame(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 50 {
		p, err := devenv.TakePorts(t.Context(), 16)
		require.NoError(t, err)
		t.Cleanup(p.Release)
		for i := range 16 {
			require.False(t, seen[p.Address(i)], p.Address(i))
			seen[p.Address(i)] = true
		}
	}
	_, err := devenv.TakePorts(t.Context(), 17)
	require.Error(t, err)
}

func TestMariaDB_AnswersAgainAfterAPause(t *testing.T) {
	t.Parallel()
	server := devtest.MariaDB(t)
	db := devtest.Open(t, server.DSN("test"))
	require.NoError(t, db.PingContext(t.Context()))
	require.NoError(t, server.Pause())
	require.Eventually(t, func() bool { // its threads stop one after the other
		brief, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return db.PingContext(brief) != nil
	}, patience, time.Millisecond)
	require.NoError(t, server.Resume())
	require.NoError(t, db.PingContext(t.Context()))

	require.NoError(t, server.Pause())
	require.NoError(t, server.Stop(t.Context()), "a frozen server is stopped too")
}
