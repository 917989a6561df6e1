package devtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
)

// RabbitMQ starts a broker of the test's own, to be stopped, killed or wiped.
// It is closed when the test ends; if the test has failed, the end of its log
// is printed.
func RabbitMQ(tb testing.TB, config devenv.RabbitConfig) *devenv.RabbitMQ {
	tb.Helper()
	broker, err := devenv.StartRabbitMQ(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() { end(tb, broker) })
	return broker
}

// Settle has the broker write down what quorum queues it has. RabbitMQ 3.10 does
// so seconds after it has said that there is one, and a queue of a node that is
// killed before that never gets a leader again. What the delayed exchange holds is
// no safer by it.
func Settle(tb testing.TB, broker *devenv.RabbitMQ) {
	tb.Helper()
	out, err := broker.Eval(tb.Context(), "[ok = dets:sync(T) || T <- dets:all()], settled.")
	require.NoError(tb, err)
	require.Equal(tb, "settled", out)
}

// MariaDB starts a server of the test's own, to be stopped, killed or wiped. It
// is closed when the test ends; if the test has failed, the end of its log is
// printed.
func MariaDB(tb testing.TB) *devenv.MariaDB {
	tb.Helper()
	db, err := devenv.StartMariaDB(tb.Context(), devenv.Config{BufferPool: 64 << 20})
	require.NoError(tb, err)
	tb.Cleanup(func() { end(tb, db) })
	return db
}

type service interface {
	LogFile() string
	Close() error
}

func end(tb testing.TB, s service) {
	tb.Helper()
	if tb.Failed() {
		tb.Logf("end of %s:\n%s", s.LogFile(), tail(s.LogFile()))
	}
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
}

func tail(path string) string {
	const limit = 4000
	log, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-limit):])
}
