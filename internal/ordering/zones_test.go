package ordering_test

import (
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
)

const zonesDSN = "ORDERING_ZONES_DSN"

// Scenario 28, for orders: DSN loc x session time_zone x TZ of the process. A process has one zone, so each TZ is a child that
// writes to this test's database.
func TestScenario28_OrderTimesAreOneInstantInEveryZone(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	s := openShop(t, dsn, ordering.Config{})
	s.stock("a", 100)
	for _, tz := range []string{"UTC", "America/New_York"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestZones_EveryDSNStoresTheSameInstant$", "-test.count=1")
		cmd.Env = append(os.Environ(), "TZ="+tz, zonesDSN+"="+dsn)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", tz, out)
	}
	require.Equal(t, int64(12), s.number("SELECT COUNT(*) FROM orders"))
	require.Zero(t, s.number(`SELECT COUNT(*) FROM orders o JOIN outbox_messages m ON m.message_key = o.no
		WHERE m.due_at <> o.due_at OR TIMESTAMPDIFF(MICROSECOND, o.created_at, o.due_at) <> 1800000000
			OR ABS(TIMESTAMPDIFF(SECOND, o.created_at, UTC_TIMESTAMP(6))) > 600
			OR ABS(TIMESTAMPDIFF(SECOND, o.closed_at, UTC_TIMESTAMP(6))) > 600`))
}

func TestZones_EveryDSNStoresTheSameInstant(t *testing.T) {
	t.Parallel()
	plain := os.Getenv(zonesDSN)
	if plain == "" {
		plain = devtest.Database(t)
	}
	reader := openShop(t, plain, ordering.Config{})
	reader.stock("a", 100)
	for _, loc := range []string{"UTC", "Local", "Asia/Shanghai"} {
		for _, zone := range []string{"+00:00", "+08:00"} {
			s := openShop(t, plain+"&loc="+url.QueryEscape(loc)+"&time_zone="+url.QueryEscape("'"+zone+"'"), ordering.Config{})
			o := s.place(draft("a", 1))
			now := time.Now()
			require.WithinDuration(t, now, o.CreatedAt, 10*time.Minute, "the database's clock, read as UTC")
			require.Equal(t, 30*time.Minute, o.DueAt.Sub(o.CreatedAt))
			m, err := s.store.Lookup(t.Context(), model.TopicExpire, o.No)
			require.NoError(t, err)
			require.Equal(t, o.DueAt, m.DueAt)
			closed, err := s.Cancel(t.Context(), o.No)
			require.NoError(t, err)
			require.WithinDuration(t, now, closed.ClosedAt, 10*time.Minute)
			require.Equal(t, o, closed.AsPlaced(), "read as it was written, loc %s zone %s", loc, zone)
			require.Equal(t, closed, reader.order(o.No), "and so by another setting, loc %s zone %s", loc, zone)
			require.Equal(t, o.DueAt.UnixMicro(), reader.number(`SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at)
				FROM orders WHERE no = ?`, o.No))
		}
	}
}
