package outbox

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock_IsNeverAheadOfTheDatabase(t *testing.T) {
	t.Parallel()
	var c clock
	_, ok := c.now(time.Now())
	require.False(t, ok, "no reading yet")

	start := time.Now()
	const offset = -3 * time.Hour // the database's clock, by this process's
	database := func(local time.Time) time.Time { return local.Add(offset) }
	for i, trip := range []int{40, 5, 90, 7} {
		read := start.Add(time.Duration(i) * time.Second)
		c.observe(read.Add(time.Duration(trip)*time.Millisecond), database(read))
	}
	at := start.Add(5 * time.Second)
	now, ok := c.now(at)
	require.True(t, ok)
	require.Equal(t, database(at).Add(-5*time.Millisecond).UnixNano(), now.UnixNano(), "the shortest way counts")
	require.Equal(t, at.Add(5*time.Millisecond).Sub(start), c.local(database(at)).Sub(start), "and errs to the late side")

	far := c.local(time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC))
	require.True(t, far.After(start.Add(100*365*24*time.Hour)), "years ahead do not wrap")
	require.True(t, c.local(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)).Before(start))
}

func TestClock_ForgetsAStepOfTheDatabase(t *testing.T) {
	t.Parallel()
	var c clock
	start := time.Now()
	stepped := start.Add(-time.Hour)
	c.observe(start, start) // then another server takes over, an hour behind
	for s := 1; s <= 70; s++ {
		local := start.Add(time.Duration(s) * time.Second)
		c.observe(local, stepped.Add(time.Duration(s)*time.Second))
	}
	at := start.Add(70 * time.Second)
	now, ok := c.now(at)
	require.True(t, ok)
	require.Equal(t, stepped.Add(70*time.Second).UnixNano(), now.UnixNano())

	_, ok = c.now(at.Add(2 * time.Minute))
	require.False(t, ok, "an old reading is none")
}

func TestDueText_RoundsUpAndForgetsTheZone(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 8*3600)
	require.Equal(t, "2026-01-01 00:00:00.000000", dueText(time.Date(2026, 1, 1, 8, 0, 0, 0, zone)))
	require.Equal(t, "2026-01-01 00:00:00.000001", dueText(time.Date(2026, 1, 1, 8, 0, 0, 1, zone)))
	require.Equal(t, "2026-01-01 00:00:01.000000", dueText(time.Date(2026, 1, 1, 8, 0, 0, 999_999_001, zone)))
	require.EqualValues(t, 2, ceilMicros(1001*time.Nanosecond))
	require.EqualValues(t, 1, ceilMicros(1000*time.Nanosecond))
	require.EqualValues(t, -1, ceilMicros(-1500*time.Nanosecond))
}

func TestDoubling_StopsAtItsLimit(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 6: 10, 1000: 10} {
		require.Equal(t, time.Duration(want)*time.Second, doubling(time.Second, 10*time.Second, n), n)
	}
}

func TestFlight_ForgetsARowOnlyWhenTheNextScanBegins(t *testing.T) {
	t.Parallel()
	f := newFlight(100, 1000)
	it := item{pub: Publication{ID: 7}, revision: 1, shard: 3, bytes: 10}
	require.True(t, f.add(it))
	require.False(t, f.add(it))
	rows, bytes := f.room()
	require.Equal(t, 99, rows)
	require.Equal(t, 990, bytes)
	require.Equal(t, 1, f.ofShard(3))
	f.end(it)
	require.Zero(t, f.ofShard(3))
	require.False(t, f.add(it), "a scan that was under way may still return it")
	f.beginScan()
	require.True(t, f.add(it))

	moved := it
	moved.revision = 2
	require.True(t, f.add(moved), "rescheduled while in flight")
	f.end(it)
	f.beginScan()
	require.False(t, f.add(moved), "the newer revision is still in flight")
	f.end(moved)
	f.beginScan()
	rows, bytes = f.room()
	require.Equal(t, 100, rows)
	require.Equal(t, 1000, bytes)
}

func TestSeldom_SaysTheSameOnceInTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var warned seldom
		said := 0
		for range 60 {
			if warned.again() {
				said++
			}
			<-time.After(time.Second)
		}
		require.Equal(t, 6, said)
	})
}

func TestNewOwner_IsANameOfItsOwn(t *testing.T) {
	t.Parallel()
	one, other := newOwner(), newOwner()
	require.True(t, isName(one, 64), one)
	require.NotEqual(t, one, other)
}

// However many delays a publisher has, a relay takes no more than it has room for, and leaves some for what is due.
func TestLooks_ShareTheRoom(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{time.Minute, time.Hour, 24 * time.Hour}
	for _, c := range []struct {
		reach                Reach
		waiting, rows, looks int
	}{
		{Reach{UpTo: time.Hour, Delays: delays}, 0, 4096, 1},
		{Reach{}, 0, 4096, 1},
		{Reach{Delays: delays}, 0, 4096, 4},
		{Reach{Delays: delays}, 0, 1024, 4},
		{Reach{Delays: delays}, 2000, 2096, 4},
		{Reach{Delays: delays}, 2048, 2048, 1}, // half of its room waits already
		{Reach{Delays: delays}, 0, 4, 1},
	} {
		r := Relay{cfg: RelayConfig{MaxInFlight: 4096, Horizon: time.Minute}, delayed: map[time.Duration]*scanner{}}
		looks := r.looks(c.reach, time.Now(), c.waiting, c.rows, 1<<20)
		require.Len(t, looks, c.looks, c)
		rows, bytes := 0, 0
		for _, l := range looks {
			require.Positive(t, l.rows, c)
			rows += min(l.rows, scanRows)
			bytes += l.bytes
		}
		require.LessOrEqual(t, rows, c.rows, c)
		require.LessOrEqual(t, bytes, 1<<20, c)
		require.GreaterOrEqual(t, looks[0].rows, min(c.rows/2, scanRows), c)
	}
}
