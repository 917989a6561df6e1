package outbox

import (
	"sync"
	"time"
)

// clock relates the database's clock to this process's monotonic one. The zero value has no reading yet.
//
// A reading pairs the database's time with the local time at which the answer had arrived, so the estimate is never
// ahead of the database. Of the readings in the last window the one with the shortest way back wins. A step of the
// database's clock (a failover to another server) is forgotten after two windows at most; until then the guard, which
// asks the database itself, keeps effects from being early.
type clock struct {
	mu       sync.Mutex
	base     time.Time // zero of the monotonic readings below
	since    time.Time // when the current window began
	lag      time.Duration
	previous time.Duration // least lag of the window before; 0: none
}

const clockWindow = 30 * time.Second

// observe takes the database's time, read in an answer that had arrived at local.
func (c *clock) observe(local, database time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		c.base = local
	}
	// The lag is large and positive or negative but never 0 in practice: it holds the distance between 1970 and base.
	lag := local.Sub(c.base) - time.Duration(database.UnixNano())
	switch {
	case c.since.IsZero() || local.Sub(c.since) > 2*clockWindow:
		c.since, c.lag, c.previous = local, lag, 0
	case local.Sub(c.since) > clockWindow:
		c.since, c.lag, c.previous = local, lag, c.lag
	default:
		c.lag = min(c.lag, lag)
	}
}

func (c *clock) best() time.Duration {
	if c.previous != 0 {
		return min(c.lag, c.previous)
	}
	return c.lag
}

// now returns the database's time at local; false when no reading is younger than two windows.
func (c *clock) now(local time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || local.Sub(c.since) > 2*clockWindow {
		return time.Time{}, false
	}
	return time.Unix(0, int64(local.Sub(c.base)-c.best())).UTC(), true
}

// local returns the local time, with a monotonic reading, at which the database's clock shows at. It must follow an
// observe. Times further than 200 years away are cut to that.
func (c *clock) local(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := at.Sub(time.Unix(0, int64(-c.best()))) // Sub saturates at 292 years
	return c.base.Add(min(wait, 200*365*24*time.Hour))
}
