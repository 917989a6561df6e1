package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duebox/duebox/internal/child"
	"github.com/duebox/duebox/internal/devenv"
)

const startLimit = 2 * time.Minute

// stage is everything that runs: the services, the product's processes, and the links between them.
type stage struct {
	database *devenv.MariaDB
	broker   *devenv.RabbitMQ
	ports    *devenv.Ports
	db       *sql.DB // the check's own, past the links; one connection
	api      *member
	workers  []*member
	deaths   deaths
	heard    *heard
}

// setUp starts everything. Whatever it returns is to be closed.
func setUp(ctx context.Context, o Options, log *logs) (*stage, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s := &stage{heard: &heard{}}
	if err := s.startServices(ctx, o.Dir); err != nil {
		return s, err
	}
	if err := migrate(ctx, o.Program, s.database.DSN("test")); err != nil {
		return s, err
	}
	var err error
	if s.ports, err = devenv.TakePorts(ctx, 3*(workers+1)); err != nil {
		return s, err
	}
	for i := range workers + 1 {
		if err := s.addMember(ctx, i, o, log); err != nil {
			return s, err
		}
	}
	for _, m := range s.members() {
		if err := child.AwaitReady(ctx, m.current(), m.url); err != nil {
			return s, fmt.Errorf("%s is not ready: %w", m.name, err)
		}
	}
	return s, nil
}

// addMember starts the api, which is the first, or a worker, with links of its own.
func (s *stage) addMember(ctx context.Context, i int, o Options, log *logs) (err error) {
	own, toDatabase, toBroker := s.ports.Address(3*i), s.ports.Address(3*i+1), s.ports.Address(3*i+2)
	m := &member{name: "api", program: o.Program, args: []string{"api"}, url: "http://" + own, deaths: &s.deaths}
	variable := "HTTP_ADDR"
	if i == 0 {
		s.api = m
	} else {
		m.name, m.args, variable = "worker-"+strconv.Itoa(i), []string{"worker", "--log-level=debug"}, "WORKER_HTTP_ADDR"
		s.workers = append(s.workers, m)
		if m.toBroker, err = newLink(m.name+" broker", toBroker, loopback(s.broker.Port())); err != nil {
			return err
		}
	}
	if m.toDatabase, err = newLink(m.name+" database", toDatabase, loopback(s.database.Port())); err != nil {
		return err
	}
	if m.env, err = s.environment(m, o); err != nil {
		return err
	}
	m.env = append(m.env, variable+"="+own)
	m.onLine = log.keep(m.name, s.heard)
	return m.start(ctx)
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func (s *stage) members() []*member {
	if s.api == nil {
		return nil
	}
	return append([]*member{s.api}, s.workers...)
}

func (s *stage) startServices(ctx context.Context, dir string) error {
	var (
		both         sync.WaitGroup
		dbErr, mqErr error
	)
	both.Go(func() {
		s.database, dbErr = devenv.StartMariaDB(ctx, devenv.Config{Dir: dir, BufferPool: 64 << 20})
	})
	both.Go(func() { s.broker, mqErr = devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Dir: dir}) })
	both.Wait()
	if err := errors.Join(dbErr, mqErr); err != nil {
		return err
	}
	config, err := mysql.ParseDSN(s.database.DSN("test"))
	if err != nil {
		return err
	}
	config.Logger = &mysql.NopLogger{} // a killed server would fill the output; every error is returned too
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	s.db = sql.OpenDB(connector)
	s.db.SetMaxOpenConns(1)
	return nil
}

func migrate(ctx context.Context, program, dsn string) error {
	p, err := child.Start(program, "duebox migrate", []string{"migrate"}, append(plainEnvironment(), "MYSQL_DSN="+dsn), nil)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

func plainEnvironment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "TZ=" + os.Getenv("TZ")}
}

// environment is all that a process knows: nothing of the caller's settings reaches it.
func (s *stage) environment(m *member, o Options) ([]string, error) {
	config, err := mysql.ParseDSN(s.database.DSN("test"))
	if err != nil {
		return nil, err
	}
	env := append(plainEnvironment(),
		// As an installation would have it, with no timeouts of ours.
		fmt.Sprintf("MYSQL_DSN=%s:%s@tcp(%s)/%s", config.User, config.Passwd, m.toDatabase.address(), config.DBName),
		"NAMESPACE="+namespace, "MIGRATE_ON_START=false", "RATE_LIMIT=0", "DRAIN_TIMEOUT="+drainLimit.String(),
		"HORIZON="+horizon.String(), "GRACE="+grace.String(), "RECONCILE_SCHEDULE=@every "+reconcileEach.String(),
		"DELAY_STRATEGY="+o.Strategy, "DELAY_TIERS=2s,5s,12s",
		"ORDER_TIMEOUT_FLASH="+flashTimeout.String(),
		"ORDER_TIMEOUT_NORMAL="+normalTimeout.String(),
		"ORDER_TIMEOUT_PRESALE="+o.Presale.String(),
		"ORDER_REMIND_BEFORE="+remindBefore.String(),
	)
	if m.toBroker != nil {
		broker, err := url.Parse(s.broker.URL())
		if err != nil {
			return nil, err
		}
		broker.Host = m.toBroker.address()
		env = append(env, "AMQP_URL="+broker.String())
	}
	return env, nil
}

// close ends what still runs, in whatever state it is.
func (s *stage) close() error {
	var errs []error
	for _, m := range s.members() {
		m.kill()
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	// A nil pointer here is a service that did not start.
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.database != nil {
		errs = append(errs, s.database.Close())
	}
	for _, m := range s.members() {
		for _, l := range []*link{m.toBroker, m.toDatabase} {
			if l != nil {
				l.close()
			}
		}
	}
	if s.ports != nil {
		s.ports.Release()
	}
	return errors.Join(errs...)
}
