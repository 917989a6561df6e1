package main

import (
	"context"
	"errors"
	"io"

	"github.com/duebox/duebox/internal/devenv"
)

// services is what a benchmark runs on: an empty database and, unless it needs none, a broker.
type services struct {
	dsn      string
	amqp     string // empty without a broker
	exchange string // a constant of devenv
	broker   *devenv.RabbitMQ
	close    func() error
}

// noBroker is the exchange of a benchmark that needs none.
const noBroker = "no broker"

// startServices starts a database and a broker of its own for one benchmark. The exchange is a constant of devenv, noBroker, or empty for
// whichever is there; pool is the size of the database's buffer pool in bytes, 0 for that of devenv.
func startServices(ctx context.Context, exchange string, pool int64, log io.Writer) (services, error) {
	db, err := devenv.StartMariaDB(ctx, devenv.Config{Log: log, BufferPool: pool})
	if err != nil {
		return services{}, err
	}
	if exchange == noBroker {
		return services{dsn: db.DSN("test"), close: db.Close}, nil
	}
	broker, err := devenv.StartRabbitMQ(ctx, devenv.RabbitConfig{Log: log, Plugin: exchange})
	if err != nil {
		return services{}, errors.Join(err, db.Close())
	}
	return services{
		dsn: db.DSN("test"), amqp: broker.URL(), exchange: broker.Exchange(), broker: broker,
		close: func() error { return errors.Join(broker.Close(), db.Close()) },
	}, nil
}
