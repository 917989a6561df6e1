package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"

	_ "github.com/go-sql-driver/mysql" // the check opens the database by itself

	"github.com/duebox/duebox/internal/devenv"
)

// services are the database and the broker.
type services struct {
	mariadb *devenv.MariaDB
	broker  *devenv.RabbitMQ
	dsn     string
	db      *sql.DB // the check's own
}

// startServices starts both at the same time. Whatever it returns is to be closed.
func startServices(ctx context.Context, dir string, log io.Writer) (*services, error) {
	var (
		s            services
		both         sync.WaitGroup
		dbErr, mqErr error
	)
	both.Go(func() { s.mariadb, dbErr = devenv.StartMariaDB(ctx, devenv.Config{Dir: dir, Log: log}) })
	both.Go(func() { s.broker, mqErr = devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Dir: dir, Log: log}) })
	both.Wait()
	if err := errors.Join(dbErr, mqErr); err != nil {
		return &s, err
	}
	if s.broker.Exchange() == devenv.ExchangeNone {
		return &s, errors.New("this machine's RabbitMQ has no x-delayed-message exchange, and none can be made for it; the demo needs 3.x or the plugin")
	}
	s.dsn = s.mariadb.DSN("test")
	var err error
	s.db, err = sql.Open("mysql", s.dsn)
	return &s, err
}

func (s *services) close() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	// A nil pointer here is a service that did not start.
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.mariadb != nil {
		errs = append(errs, s.mariadb.Close())
	}
	return errors.Join(errs...)
}

// killBroker is kill -9 and a start on the same data.
func (s *services) killBroker(ctx context.Context) error {
	if err := s.broker.Kill(); err != nil {
		return fmt.Errorf("kill the broker: %w", err)
	}
	if err := s.broker.Start(ctx); err != nil {
		return fmt.Errorf("start the broker again: %w", err)
	}
	return nil
}
