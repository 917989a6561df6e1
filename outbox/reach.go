package outbox

import "time"

// Reach is how far ahead of their time a publisher takes messages. The zero value: not at all, each at its time only.
type Reach struct {
	// UpTo is how far ahead any message is taken. What is taken so is lost when the broker restarts, as far as anybody knows.
	UpTo time.Duration
	// Delays are for a publisher that keeps messages for these times only: a message is taken when it is that far ahead, or up to
	// 100 ms later, and fires that much late. What it keeps outlives a restart of the broker. With UpTo they are not used.
	Delays []time.Duration
}

// delayLag is how much later than it should be a message may still be handed over for a delay.
const delayLag = 100 * time.Millisecond

// Delay returns the longest delay for a message that should fire after left; 0: it is to be taken at its time. A message that is
// further ahead than its delay must wait for the rest, else it would be early.
func (r Reach) Delay(left time.Duration) time.Duration {
	delay := time.Duration(0)
	for _, d := range r.Delays {
		if d <= left+delayLag {
			delay = max(delay, d)
		}
	}
	return delay
}

// anywhere is the reach of a publisher that takes everything at once.
func anywhere() Reach { return Reach{UpTo: 1<<63 - 1} }

// furthest is how far ahead of its time a message may have been published, if UpTo is not used.
func (r Reach) furthest() time.Duration {
	furthest := time.Duration(0)
	for _, d := range r.Delays {
		furthest = max(furthest, d)
	}
	return furthest
}

// takenAt is when it may be handed over. What a broker has fired too soon (held) is never published ahead again.
func (r Reach) takenAt(it *item, now time.Time) time.Time {
	switch {
	case it.held:
		return it.pub.FireAt
	case r.UpTo > 0:
		return now
	}
	return it.pub.FireAt.Add(-r.Delay(it.pub.FireAt.Sub(now)))
}
