package devtest

import (
	"os"
	"time"
)

// Soak tells whether tests run with the durations and repeats that are written for them, as "make soak" has them do
// (DUEBOX_SOAK is set), and not with those that fit a test run.
func Soak() bool { return os.Getenv("DUEBOX_SOAK") != "" }

// Minute is what a written minute takes: a second, or a minute in a soak.
func Minute() time.Duration {
	if Soak() {
		return time.Minute
	}
	return time.Second
}

// Second is what a written second takes, but at least shortest: a sixtieth of a second is too short for some tests.
func Second(shortest time.Duration) time.Duration { return max(Minute()/60, shortest) }
