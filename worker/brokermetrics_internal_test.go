package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopwatch_AddsUpTheTimesForWhichItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s stopwatch
		wait := func(d time.Duration) { <-time.After(d) }
		s.stop()
		wait(time.Minute)
		require.Zero(t, s.read())
		s.start()
		wait(time.Second)
		s.start() // it runs already
		wait(time.Second)
		require.Equal(t, 2*time.Second, s.read(), "the time until now")
		s.stop()
		wait(time.Minute)
		s.start()
		wait(time.Second)
		s.stop()
		require.Equal(t, 3*time.Second, s.read())
	})
}
