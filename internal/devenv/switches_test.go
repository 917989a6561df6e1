package devenv_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

func TestStandIn_LosesEveryNth(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeStandIn, Lose: 3})
	x := declareOn(t, broker.URL(), "t", nil)
	burst := func(want ...string) {
		for i := range 6 {
			x.publish(t, "bound", strconv.Itoa(i+1), delay(int64(500)))
		}
		x.publish(t, "bound", "not counted", nil)
		require.Equal(t, "not counted", string(x.take(t).Body))
		for _, body := range want {
			require.Equal(t, body, string(x.take(t).Body))
		}
	}
	burst("1", "2", "4", "5")
	require.NoError(t, broker.SetLose(t.Context(), 2))
	burst("1", "3", "5")
	require.NoError(t, broker.SetLose(t.Context(), 1))
	burst()
	require.NoError(t, broker.SetLose(t.Context(), 0))
	burst("1", "2", "3", "4", "5", "6")
}

func TestStandIn_StuckFiresNothingUntilItIsFreed(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeStandIn})
	x := declareOn(t, broker.URL(), "t", nil)
	x.publish(t, "bound", "before", delay(int64(10)))
	require.Equal(t, "before", string(x.take(t).Body))

	require.NoError(t, broker.SetStuck(t.Context(), true))
	x.publish(t, "bound", "meanwhile", delay(int64(1)))
	x.publish(t, "bound", "undelayed", nil)
	require.Equal(t, "undelayed", string(x.take(t).Body))
	require.Never(t, func() bool { return len(x.takes) > 0 }, 500*time.Millisecond, 50*time.Millisecond)

	// A restart does not free it.
	require.NoError(t, broker.Stop(t.Context()))
	require.NoError(t, broker.Start(t.Context()))
	x = declareOn(t, broker.URL(), "t", nil)
	x.publish(t, "bound", "after", delay(int64(1)))
	require.Never(t, func() bool { return len(x.takes) > 0 }, 500*time.Millisecond, 50*time.Millisecond)

	require.NoError(t, broker.SetStuck(t.Context(), false))
	require.Equal(t, "meanwhile", string(x.take(t).Body))
	require.Equal(t, "after", string(x.take(t).Body))
}
