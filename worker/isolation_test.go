package worker_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/worker"
)

// A pool that duebox has not opened itself runs as its server does: REPEATABLE READ, unless somebody has changed that.
func TestWorker_WarnsOfSessionsThatLockGaps(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://127.0.0.1:1/", "ns")
	p.db = devtest.OpenGorm(t, p.doom.DSN)
	said, log := newLines(slog.LevelWarn)
	_, stop := p.start(t, worker.Config{Log: log}, map[string]worker.Effect{topic: written})
	line := said.next(t, "the database's sessions do not run READ COMMITTED, writers will wait for each other")
	require.Equal(t, "REPEATABLE-READ", line["isolation"])
	require.NoError(t, stop())
}
