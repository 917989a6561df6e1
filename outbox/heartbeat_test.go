package outbox_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestRelay_WritesWhatItsProcessSaysOfItself(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	began := time.Now().Add(-time.Hour)
	var said atomic.Pointer[outbox.Heartbeat]
	want := outbox.Heartbeat{
		Strategy: "hold", Why: "it was asked for", Epoch: 3, Connected: true, Since: began,
		Queues: []outbox.WorkQueue{{Topic: "order.expire", Ready: 7, Consumers: 2}}, Published: 5, Finished: 4,
	}
	said.Store(&want)
	stop := l.start(t, newBroker(t), outbox.RelayConfig{
		Owner: "me", Lease: 600 * time.Millisecond, Heartbeat: func() outbox.Heartbeat { return *said.Load() },
	})
	var first outbox.Peer
	peer := func() (p outbox.Peer) {
		peers, err := l.Peers(t.Context())
		require.NoError(t, err)
		if len(peers) == 1 {
			p = peers[0]
		}
		return p
	}
	eventually(t, "has said so", func() bool { first = peer(); return first.Owner == "me" })
	require.WithinDuration(t, began, first.Since, 10*time.Second, "the age, put on the database's clock")
	require.Less(t, first.Silent, wait)
	heartbeat := first.Heartbeat
	heartbeat.Since = began
	require.Empty(t, cmp.Diff(want, heartbeat))

	next := want
	next.Published = 6
	said.Store(&next)
	eventually(t, "says it again", func() bool { return peer().Published == 6 })
	again := peer()
	require.True(t, again.SeenAt.After(first.SeenAt))
	require.Equal(t, first.Since, again.Since, "it does not move by what a statement takes")

	next.Connected, next.Reason, next.Since = false, strings.Repeat("ä", 2000), time.Now()
	said.Store(&next)
	eventually(t, "is not connected", func() bool { return !peer().Connected })
	again = peer()
	require.Equal(t, strings.Repeat("ä", 1000), again.Reason, "cut to what there is room for")
	require.True(t, again.Since.After(first.Since))

	stop()
	require.Zero(t, peer(), "who has ended as it should is no peer")
}

func TestPeers_AreThoseOfTheLastHour(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.exec(t, `INSERT INTO outbox_relays (owner, seen_at) VALUES ('gone', UTC_TIMESTAMP(6) - INTERVAL 2 HOUR),
		('mute', UTC_TIMESTAMP(6) - INTERVAL 30 MINUTE), ('ahead', UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE)`)
	peers, err := l.Peers(t.Context())
	require.NoError(t, err)
	require.Len(t, peers, 2)
	require.Equal(t, "ahead", peers[0].Owner)
	require.Zero(t, peers[0].Silent, "the clock was set back")
	require.Equal(t, "mute", peers[1].Owner)
	require.Greater(t, peers[1].Silent, 29*time.Minute)
	require.Zero(t, peers[1].Heartbeat)
}
