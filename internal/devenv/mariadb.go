package devenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a private MariaDB server. Its methods may be called from any
// goroutine; they exclude each other.
type MariaDB struct {
	config   Config
	server   string
	install  string
	home     *home
	ports    *ports
	password string

	mu      sync.Mutex
	process *process
}

// StartMariaDB makes a server with an empty database "test" and returns when
// it answers. Without a deadline in ctx it gives up after two minutes; ctx does
// not bound the server's life. The caller ends it with Close. A *MissingError
// says that the programs are not installed.
func StartMariaDB(ctx context.Context, config Config) (*MariaDB, error) {
	ctx, cancel := limited(ctx, startLimit)
	defer cancel()
	server, err := program("mariadbd", "mariadbd", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}
	install, err := program("mariadb-install-db", "mariadb-install-db")
	if err != nil {
		return nil, err
	}
	if _, err := program("my_print_defaults", "my_print_defaults"); err != nil {
		return nil, err
	}
	if config.BufferPool == 0 {
		config.BufferPool = defaultBufferPool
	}
	return startFirst(ctx, config.Log, 1, func(p *ports) (*MariaDB, error) {
		h, err := newHome(config.Dir, "mariadb")
		if err != nil {
			return nil, err
		}
		return &MariaDB{
			config: config, server: server, install: install,
			home: h, ports: p, password: secret(),
		}, nil
	})
}

// DSN is the data source name of root on database, which may be empty, in the
// form of github.com/go-sql-driver/mysql.
func (m *MariaDB) DSN(database string) string { return m.dsn(database).FormatDSN() }

func (m *MariaDB) dsn(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User = "root"
	c.Passwd = m.password
	c.Net = "tcp"
	c.Addr = "127.0.0.1:" + strconv.Itoa(m.Port())
	c.DBName = database
	c.InterpolateParams = true
	c.Timeout = 5 * time.Second
	c.ReadTimeout = time.Minute
	c.WriteTimeout = time.Minute
	_ = c.Apply(mysql.Charset("utf8mb4", ""))
	return c
}

// Port is the TCP port on 127.0.0.1. It stays the same over restarts.
func (m *MariaDB) Port() int { return m.ports.base }

// PID is the server's process id, 0 while it does not run.
func (m *MariaDB) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.process.running() {
		return 0
	}
	return m.process.pid
}

// Start starts the server again on the same port and data and returns when it
// answers. If it fails, nothing is left running.
func (m *MariaDB) Start(ctx context.Context) error {
	ctx, cancel := limited(ctx, startLimit)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process.running() {
		return errRunning
	}
	began := time.Now()
	if err := m.initialize(ctx); err != nil {
		return err
	}
	p, err := m.home.start("mariadb", m.LogFile(), baseEnv(m.home.dir), m.command()...)
	if err != nil {
		return err
	}
	m.process = p
	if err := awaitReady(ctx, p, m.LogFile(), m.ping); err != nil {
		return errors.Join(fmt.Errorf("devenv: start mariadbd: %w", err), p.kill())
	}
	say(m.config.Log, "MariaDB listens on 127.0.0.1:%d after %.1f s", m.Port(), time.Since(began).Seconds())
	return nil
}

// initialize makes the data folder unless it is there.
func (m *MariaDB) initialize(ctx context.Context) error {
	if _, err := os.Stat(m.home.path("data", "mysql")); err == nil {
		return nil
	}
	// Only root over TCP, with a password: other users of the machine can
	// reach the port.
	script := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS test;\n"+
		"DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys' AND Host <> '127.0.0.1';\n"+
		"FLUSH PRIVILEGES;\n"+
		"SET PASSWORD FOR 'root'@'127.0.0.1' = PASSWORD('%s');\n", m.password)
	if err := os.WriteFile(m.home.path("setup.sql"), []byte(script), 0o600); err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	args := []string{
		"--no-defaults", "--datadir=" + m.home.path("data"), "--extra-file=" + m.home.path("setup.sql"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
	}
	argv := append(append([]string{m.install}, args...), m.asUser()...)
	if err := m.home.run(ctx, "mariadb-install-db", baseEnv(m.home.dir), argv...); err != nil {
		// Half a data folder must not be taken for a whole one.
		return errors.Join(err, os.RemoveAll(m.home.path("data")))
	}
	return nil
}

// asUser lets root run the server as root, which it otherwise refuses.
func (m *MariaDB) asUser() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func (m *MariaDB) command() []string {
	flush := "1"
	if m.config.Unflushed {
		flush = "2"
	}
	args := []string{
		m.server,
		"--no-defaults",
		"--datadir=" + m.home.path("data"),
		"--tmpdir=" + m.home.dir,
		// Relative to the data folder: a socket's path has at most 107 bytes.
		"--socket=socket",
		"--pid-file=" + m.home.path("mariadb.pid"),
		"--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(m.Port()),
		"--skip-name-resolve",
		"--character-set-server=utf8mb4",
		"--innodb-flush-log-at-trx-commit=" + flush,
		"--innodb-buffer-pool-size=" + strconv.FormatInt(m.config.BufferPool, 10),
		"--performance-schema=OFF",
		"--max-connections=1000",
	}
	if m.config.GeneralLog != "" {
		args = append(args, "--general-log=1", "--log-output=FILE", "--general-log-file="+m.config.GeneralLog)
	}
	return append(append(args, m.config.Arguments...), m.asUser()...)
}

// ping opens a connection of its own and asks for an answer.
func (m *MariaDB) ping(ctx context.Context) error {
	c := m.dsn("")
	c.Logger = &mysql.NopLogger{} // a server that starts may hang up
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	return db.PingContext(ctx)
}

// Stop shuts the server down cleanly. Without a deadline in ctx it waits a
// minute; if the server has not ended then, it is killed and an error returned.
func (m *MariaDB) Stop(ctx context.Context) error {
	ctx, cancel := limited(ctx, stopLimit)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.process.signal(syscall.SIGCONT, true)
	if err := m.process.stop(ctx); err != nil {
		return fmt.Errorf("devenv: stop mariadbd: %w", err)
	}
	return nil
}

// Kill is kill -9. It returns when the process is gone.
func (m *MariaDB) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process.kill()
}

// Wipe kills the server and removes its data. The next Start makes an empty
// one on the same port, with the same password.
func (m *MariaDB) Wipe() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.process.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(m.home.path("data")); err != nil {
		return fmt.Errorf("devenv: wipe: %w", err)
	}
	return nil
}

// Pause freezes the server (SIGSTOP): its sockets stay open and nothing answers.
func (m *MariaDB) Pause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process.signal(syscall.SIGSTOP, true)
}

// Resume lets a frozen server go on (SIGCONT).
func (m *MariaDB) Resume() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process.signal(syscall.SIGCONT, true)
}

// Close kills the server and removes its folder. Stop first, if the data has to
// be complete. The value is of no use afterwards.
func (m *MariaDB) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.home.close()
	if m.process != nil {
		<-m.process.done
	}
	m.ports.release()
	return err
}

// LogFile is the path of the server's own log. It goes with Close.
func (m *MariaDB) LogFile() string { return m.home.path("mariadb.log") }
