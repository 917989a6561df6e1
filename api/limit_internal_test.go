package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever comes from ever new addresses takes no more memory and, all of them together, gets through what one client does.
func TestLimiter_ForgetsAndIsBounded(t *testing.T) {
	t.Parallel()
	l := newLimiter(1, 2)
	now := time.Now()
	passed := 0
	for i := range 3 * maxClients {
		if l.take(fmt.Sprint(i), now) == 0 {
			passed++
		}
	}
	require.Equal(t, maxClients+2, passed)
	require.Len(t, l.clients, maxClients)
	require.Positive(t, l.take("0", now)+l.take("0", now), "a client that is known keeps its bucket")

	now = now.Add(3 * time.Second)
	require.Zero(t, l.take("new", now))
	require.Len(t, l.clients, 1, "all others have nothing to be remembered for")
}
