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
func RabbitMQ(t testing.TB, config devenv.RabbitConfig) *devenv.RabbitMQ {
	t.Helper()
	broker, err := devenv.StartRabbitMQ(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { end(t, broker) })
	return broker
}

// MariaDB starts a server of the test's own, to be stopped, killed or wiped. It
// is closed when the test ends; if the test has failed, the end of its log is
// printed.
func MariaDB(t testing.TB) *devenv.MariaDB {
	t.Helper()
	db, err := devenv.StartMariaDB(t.Context(), devenv.Config{BufferPool: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { end(t, db) })
	return db
}

type service interface {
	LogFile() string
	Close() error
}

func end(t testing.TB, s service) {
	if t.Failed() {
		t.Logf("end of %s:\n%s", s.LogFile(), tail(s.LogFile()))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
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
