package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/duebox/duebox/internal/child"
	"github.com/duebox/duebox/internal/devenv"
	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
)

// services are the servers that all contenders share.
type services struct {
	db    *devenv.MariaDB
	amqp  *devenv.RabbitMQ
	redis *redisServer
	log   io.Writer
}

func startServices(ctx context.Context, log io.Writer) (s *services, err error) {
	s = &services{log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	program, err := findRedis()
	if err != nil {
		return s, err
	}
	if s.db, err = devenv.StartMariaDB(ctx, devenv.Config{Log: log, BufferPool: 1 << 30}); err != nil {
		return s, err
	}
	if s.amqp, err = devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Log: log}); err != nil {
		return s, err
	}
	// The folder of the database's server goes with this process, however it ends.
	if s.redis, err = startRedis(ctx, program, filepath.Dir(s.db.LogFile())); err != nil {
		return s, err
	}
	return s, s.userStatistics(ctx)
}

// userStatistics has the database count statements and rows by user. It forgets that when it starts again.
func (s *services) userStatistics(ctx context.Context) error {
	db, err := sql.Open("mysql", s.db.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "SET GLOBAL userstat = ON")
	return err
}

// Close ends them.
func (s *services) Close() (err error) {
	if s.redis != nil && s.redis.process != nil {
		err = errors.Join(err, s.redis.Kill())
	}
	if s.amqp != nil {
		err = errors.Join(err, s.amqp.Close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// team is the processes of a contender.
type team struct {
	entry

	services *services
	settings settings
	program  string
	instance string // names its database, its user and what it makes on the broker

	mu      sync.Mutex
	api     *member
	workers []*member
}

// member is a process of a team, and where it is reached.
type member struct {
	*child.Process

	url string
}

// newTeam makes a contender's place: a database, and whatever its Setup makes.
func newTeam(ctx context.Context, s *services, e entry, run string, number int, timeouts map[string]time.Duration) (*team, error) {
	// What runs now, also when the file has become another one meanwhile.
	program := fmt.Sprintf("/proc/%d/exe", os.Getpid())
	t := &team{entry: e, services: s, program: program, instance: strings.ReplaceAll(e.name+"_"+run, "-", "_")}
	db, err := sql.Open("mysql", s.db.DSN(""))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		"CREATE DATABASE " + t.instance,
		fmt.Sprintf("CREATE USER %s@'127.0.0.1' IDENTIFIED BY '%s'", t.instance, t.password()),
		fmt.Sprintf("GRANT ALL ON %s.* TO %s@'127.0.0.1'", t.instance, t.instance),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	shopDB, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = shopDB.Close() }()
	for _, statement := range schema() {
		if _, err := shopDB.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	for sku := range products {
		if _, err := shopDB.ExecContext(ctx, "INSERT INTO products VALUES (?, ?, 0, 0)", sku, stock); err != nil {
			return nil, err
		}
	}
	t.settings = settings{
		Contender: e.name, Instance: t.instance, DSN: t.dsn(), Pen: s.db.DSN(t.instance), AMQP: s.amqp.URL(), Redis: s.redis.address, RedisDB: number, Timeouts: timeouts,
	}
	setup := t.settings
	setup.Setup = true
	p, err := t.start(ctx, "setup", setup, false)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx); err != nil {
		return nil, fmt.Errorf("set up %s: %w: %s", e.name, err, p.Tail())
	}
	return t, nil
}

func (t *team) password() string { return "of-" + t.instance }

// dsn is that of the contender's user. Waiting for rows must not go on with an old snapshot.
func (t *team) dsn() string {
	config, err := mysql.ParseDSN(t.services.db.DSN(t.instance))
	if err != nil {
		panic(err) // it is ours
	}
	config.User, config.Passwd = t.instance, t.password()
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 5*time.Second, 30*time.Second, 30*time.Second
	config.ParseTime = true // goose wants it
	config.Params = map[string]string{"tx_isolation": "'READ-COMMITTED'", "time_zone": "'+00:00'"}
	return config.FormatDSN()
}

// open opens the contender's database for who counts.
func (t *team) open() (*sql.DB, error) { return sql.Open("mysql", t.services.db.DSN(t.instance)) }

func (t *team) start(ctx context.Context, name string, s settings, awaitReady bool) (*member, error) {
	var err error
	if s.Address, err = child.FreeAddress(ctx); err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p, err := child.Start(t.program, t.name+" "+name, nil, append(os.Environ(), settingsVariable+"="+string(text)), nil)
	if err != nil {
		return nil, err
	}
	m := &member{p, "http://" + s.Address}
	if !awaitReady {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return m, child.AwaitReady(ctx, p, m.url)
}

// startAPI starts what places orders. Where the contender has no worker, it also closes them.
func (t *team) startAPI(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.settings
	s.API, s.Work = true, t.entry.workers == 0
	api, err := t.start(ctx, "api", s, true)
	if api != nil {
		t.api = api
	}
	return err
}

func (t *team) startWorkers(ctx context.Context, n int) error {
	s := t.settings
	s.Work = true
	for i := range n {
		p, err := t.start(ctx, "worker "+strconv.Itoa(i), s, true)
		if err != nil {
			return err
		}
		t.workers = append(t.workers, p)
	}
	return nil
}

// Start starts all processes.
func (t *team) Start(ctx context.Context) error {
	return errors.Join(t.startAPI(ctx), t.startWorkers(ctx, t.entry.workers))
}

// closers are the processes that close orders.
func (t *team) closers() []*member {
	if t.entry.workers == 0 {
		return append([]*member{t.api}, t.workers...)
	}
	return t.workers
}

// endWorkers ends what closes orders: by SIGTERM, or by SIGKILL.
func (t *team) endWorkers(kill bool) {
	var g errgroup.Group
	for _, p := range t.closers() {
		g.Go(func() error {
			if kill {
				p.Kill()
				<-p.Done()
				return nil
			}
			return p.Stop(20 * time.Second)
		})
	}
	_ = g.Wait() // how a contender ends is its own affair
	t.workers = nil
}

// startAgain starts what endWorkers has ended.
func (t *team) startAgain(ctx context.Context) error {
	if t.entry.workers == 0 {
		return t.startAPI(ctx)
	}
	return t.startWorkers(ctx, t.entry.workers)
}

// Stop ends all processes.
func (t *team) Stop() {
	t.endWorkers(false)
	if t.api != nil {
		_ = t.api.Stop(10 * time.Second)
	}
}

// address is where the API listens now.
func (t *team) address() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.api.url
}

// memory is what is live on the heaps of all processes, in bytes.
func (t *team) memory(ctx context.Context) (sum float64, err error) {
	for _, p := range append([]*member{t.api}, t.workers...) {
		live, err := liveBytes(ctx, p.url)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", p.Name(), err)
		}
		sum += live
	}
	return sum, nil
}

// stored is the size of the files of the contender's database, in bytes.
func (t *team) stored(ctx context.Context) (size float64, err error) {
	db, err := t.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	return size, db.QueryRowContext(ctx, "SELECT SUM(FILE_SIZE) FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE ?", t.instance+"/%").Scan(&size)
}

// lastDue is the latest due time of the orders of a phase.
func (t *team) lastDue(ctx context.Context, phase string) (due time.Time, err error) {
	db, err := t.open()
	if err != nil {
		return due, err
	}
	defer func() { _ = db.Close() }()
	var micros sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MAX(due_at)) FROM orders WHERE phase = ?", phase).Scan(&micros)
	return time.Now().Add(time.Duration(micros.Int64) * time.Microsecond), err
}

func liveBytes(ctx context.Context, url string) (live float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+memoryPath, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fscan(resp.Body, &live)
	return live, errors.Join(err, resp.Body.Close())
}

// versions are what servers say of themselves, and what was built in.
func (s *services) versions(ctx context.Context) (all []string, err error) {
	db, err := sql.Open("mysql", s.db.DSN(""))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	var database string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&database); err != nil {
		return nil, err
	}
	broker, err := s.amqp.Eval(ctx, "element(2, application:get_key(rabbit, vsn)).")
	if err != nil {
		return nil, err
	}
	server, err := s.redis.version(ctx)
	if err != nil {
		return nil, err
	}
	all = []string{"MariaDB " + database, "RabbitMQ " + strings.Trim(strings.TrimSpace(broker), `"`), "Redis " + server}
	built, _ := debug.ReadBuildInfo()
	for _, module := range []string{"github.com/rabbitmq/amqp091-go", "github.com/redis/go-redis/v9", "github.com/ThreeDotsLabs/watermill-sql/v4"} {
		for _, m := range built.Deps {
			if m.Path == module {
				all = append(all, m.Path+" "+m.Version)
			}
		}
	}
	return append(all, strings.Replace(runtime.Version(), "go", "Go ", 1)), nil
}

// machine is what figures depend on.
func machine() (string, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", err
	}
	var kilobytes int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes); err != nil {
		return "", fmt.Errorf("/proc/meminfo: %w", err)
	}
	return fmt.Sprintf("%d cores, %d GiB", runtime.NumCPU(), kilobytes>>20), nil
}
