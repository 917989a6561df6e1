package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// often is an interval of checks that a test can wait for.
const often = 50 * time.Millisecond

// ledger is epochs with something that happens when it is asked.
type ledger struct {
	epochs

	reading func() error // before the epoch is read
	raised  func() error // after it was raised
}

func (l *ledger) Epoch(ctx context.Context) (int64, error) {
	if l.reading != nil {
		if err := l.reading(); err != nil {
			return 0, err
		}
	}
	return l.epochs.Epoch(ctx)
}

func (l *ledger) Raise(ctx context.Context, from int64, empty bool) (int64, error) {
	epoch, err := l.epochs.Raise(ctx, from, empty)
	if l.raised != nil {
		err = errors.Join(err, l.raised())
	}
	return epoch, err
}

// checking runs a publisher that checks often.
func checking(t *testing.T, b *rabbitmq.Broker, e rabbitmq.Epochs) *rabbitmq.Publisher {
	t.Helper()
	return checkingWith(t, b, e, rabbitmq.PublisherConfig{Strategy: rabbitmq.Plugin})
}

func checkingWith(t *testing.T, b *rabbitmq.Broker, e rabbitmq.Epochs, cfg rabbitmq.PublisherConfig) *rabbitmq.Publisher {
	t.Helper()
	p, err := rabbitmq.NewPublisher(b, e, cfg)
	require.NoError(t, err)
	p.CheckEvery(often)
	run(t, p)
	return p
}

// requireEpoch waits until all of them are connected in the epoch.
func requireEpoch(t *testing.T, epoch int64, all ...*rabbitmq.Publisher) {
	t.Helper()
	states := make([]rabbitmq.PublisherState, len(all))
	require.Eventually(t, func() bool {
		there := true
		for i, p := range all {
			states[i] = p.State()
			there = there && states[i].Connected && states[i].Epoch == epoch
		}
		return there
	}, patience, tick, "epoch %d: %+v", epoch, &states)
}

func admin(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	ch, err := devtest.Dial(t, url).Channel()
	require.NoError(t, err)
	return ch
}

func TestEpoch_CleanReconnectRaisesNothing(t *testing.T) {
	t.Parallel()
	e := &epochs{}
	network, url := through(t, devtest.AMQP(t))
	var connects atomic.Int64
	b := at(t, url, rabbitmq.Config{Namespace: devtest.Namespace(t, topic), Observer: rabbitmq.Observer{
		Connected: func(string) { connects.Add(1) },
	}})
	p := checking(t, b, e)
	for round := range int64(11) {
		require.Eventually(t, func() bool { return connects.Load() == round+1 }, patience, tick)
		r := p.Publish(t.Context(), publications(round+1, 1, time.Now().Add(time.Hour)))
		requireConfirmed(t, r)
		require.Equal(t, int64(1), r[0].Epoch)
		network.cut()
	}
	require.Equal(t, []bool{true}, e.raised())
}

func TestEpoch_IsKnownWhenTheObserverHearsOfTheConnection(t *testing.T) {
	t.Parallel()
	type heard struct {
		epoch     int64
		connected bool
		raises    int
	}
	var (
		p    *rabbitmq.Publisher
		e    = &epochs{}
		news = make(chan heard, 10)
	)
	url := devtest.AMQP(t)
	namespace := devtest.Namespace(t, topic)
	b := at(t, url, rabbitmq.Config{Namespace: namespace, Observer: rabbitmq.Observer{
		Connected: func(string) { news <- heard{p.State().Epoch, p.State().Connected, len(e.raised())} },
	}})
	p, err := rabbitmq.NewPublisher(b, e, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	p.CheckEvery(often)
	run(t, p)
	for round := range 3 {
		require.Equal(t, heard{int64(round + 1), true, round + 1}, <-news)
		require.NoError(t, admin(t, url).ExchangeDelete(namespace+".delay", false, false))
	}
	require.Equal(t, heard{4, true, 4}, <-news)
}

// What a deleted exchange held is gone although the broker's life went on.
func TestEpoch_DeletedExchangeIsALostLifeThatIsNoticedWithoutPublishing(t *testing.T) {
	t.Parallel()
	e := &epochs{}
	url := devtest.AMQP(t)
	namespace := devtest.Namespace(t, topic)
	b := at(t, url, rabbitmq.Config{Namespace: namespace})
	all := []*rabbitmq.Publisher{checking(t, b, e), checking(t, b, e), checking(t, b, e)}
	requireEpoch(t, 1, all...)
	require.Equal(t, []bool{true}, e.raised(), "no exchange and no mark are one loss")
	for round := int64(2); round < 5; round++ {
		require.NoError(t, admin(t, url).ExchangeDelete(namespace+".delay", false, false))
		requireEpoch(t, round, all...)
		require.Len(t, e.raised(), int(round), "once, whatever the number of publishers")
		require.True(t, e.raised()[round-1], "all is gone that it held")
	}
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	requireConfirmed(t, all[0].Publish(t.Context(), publications(1, 1, time.Now().Add(100*time.Millisecond))))
	require.Eventually(t, func() bool { return in.ids()[1] == 1 }, patience, tick)
}

// What is mended holds no messages: an exchange that is deleted after a publisher has seen it must stay away until that is taken for a loss.
func TestMendPlugin_DoesNotHideADeletedExchange(t *testing.T) {
	t.Parallel()
	url := devtest.AMQP(t)
	namespace := devtest.Namespace(t, topic)
	b := at(t, url, rabbitmq.Config{Namespace: namespace})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireEpoch(t, 1, p)
	require.NoError(t, rabbitmq.MendPlugin(t.Context(), b))
	require.NoError(t, admin(t, url).ExchangeDelete(namespace+".delay", false, false))
	require.ErrorContains(t, rabbitmq.MendPlugin(t.Context(), b), "404")
	require.ErrorContains(t, admin(t, url).ExchangeDeclarePassive(namespace+".delay", "x-delayed-message", true, false, false, false, nil), "404")
}

// A session whose epoch is over would publish for nothing: the ledger does not settle what it confirms.
func TestEpoch_RaisedElsewhereIsFollowed(t *testing.T) {
	t.Parallel()
	e := &ledger{}
	p := checking(t, shared(t, topic), e)
	requireEpoch(t, 1, p)
	_, err := e.Raise(t.Context(), 1, false)
	require.NoError(t, err)
	requireEpoch(t, 2, p)
	require.Len(t, e.epochs.raised(), 2, "following is not raising")
}

func TestEpoch_DatabaseThatIsAwayEndsNoConnection(t *testing.T) {
	t.Parallel()
	var (
		away  atomic.Bool
		asked atomic.Int64
		lost  atomic.Int64
	)
	e := &ledger{}
	e.reading = func() error {
		if !away.Load() {
			return nil
		}
		asked.Add(1)
		return errors.New("away")
	}
	b := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: devtest.Namespace(t, topic), Observer: rabbitmq.Observer{
		Disconnected: func(string, error) { lost.Add(1) },
	}})
	p := checking(t, b, e)
	requireEpoch(t, 1, p)
	away.Store(true)
	require.Eventually(t, func() bool { return asked.Load() > 5 }, patience, tick)
	require.True(t, p.State().Connected)
	require.Zero(t, lost.Load())
}

func TestCheck_MakesAgainWhatSomebodyRemoved(t *testing.T) {
	t.Parallel()
	url := devtest.AMQP(t)
	namespace := devtest.Namespace(t, topic)
	var lost atomic.Int64
	b := at(t, url, rabbitmq.Config{Namespace: namespace, Observer: rabbitmq.Observer{Disconnected: func(role string, _ error) {
		if role == rabbitmq.RolePublisher {
			lost.Add(1)
		}
	}}})
	e := &epochs{}
	p := checking(t, b, e)
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	for name, remove := range map[string]func(ch *amqp.Channel) error{
		"binding of the delivery exchange": func(ch *amqp.Channel) error {
			return ch.ExchangeUnbind(namespace+".deliver", "#", namespace+".delay", false, nil)
		},
		"delivery exchange":            func(ch *amqp.Channel) error { return ch.ExchangeDelete(namespace+".deliver", false, false) },
		"exchange of what is unrouted": func(ch *amqp.Channel) error { return ch.ExchangeDelete(namespace+".unrouted", false, false) },
		"binding of the unrouted queue": func(ch *amqp.Channel) error {
			return ch.QueueUnbind(namespace+".unrouted", "", namespace+".unrouted", nil)
		},
	} {
		require.NoError(t, remove(admin(t, url)), name)
		// What reaches no work queue tells whether the whole way is there again.
		watch := admin(t, url)
		before := len(in.takenUnrouted())
		require.Eventually(t, func() bool {
			stray := amqp.Publishing{Headers: amqp.Table{"duebox-id": int64(1), "duebox-store": store, "duebox-generation": int64(1), "duebox-attempt": int64(0), "duebox-due": int64(0)}}
			if watch.IsClosed() {
				watch = admin(t, url)
			}
			_ = watch.PublishWithContext(t.Context(), namespace+".delay", "nobody", false, false, stray)
			return len(in.takenUnrouted()) > before
		}, patience, tick, name)
	}
	require.Zero(t, lost.Load(), "on the same connection")
	require.Equal(t, []bool{true}, e.raised())
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now().Add(time.Hour))))
}

// Whoever is slow to put the mark must not make the others take its life for another new one.
func TestEpoch_IsRaisedOnceHoweverManyOpenAtOnce(t *testing.T) {
	t.Parallel()
	const n = 5
	b := shared(t, topic)
	e := &ledger{}
	var (
		all  [n]*rabbitmq.Publisher
		once sync.Once
	)
	for i := range all {
		var err error
		all[i], err = rabbitmq.NewPublisher(b, e, rabbitmq.PublisherConfig{})
		require.NoError(t, err)
	}
	e.raised = func() error {
		once.Do(func() { // the first has raised the epoch, and the others come before its mark
			for _, p := range all[1:] {
				run(t, p)
			}
			require.Never(t, func() bool { return len(e.epochs.raised()) > 1 }, 500*time.Millisecond, tick)
		})
		return nil
	}
	run(t, all[0])
	requireEpoch(t, 1, all[:]...)
	require.Equal(t, []bool{true}, e.epochs.raised())
}

// The database may fail between the raise and the mark.
func TestEpoch_RaiseWithoutAnAnswerIsFollowedByTheMark(t *testing.T) {
	t.Parallel()
	var errs atomic.Int64
	e := &ledger{raised: func() error {
		if errs.Add(1) <= 2 {
			return errors.New("connection lost after the statement")
		}
		return nil
	}}
	b := shared(t, topic)
	p := opening(t, b, e)
	requireEpoch(t, 3, p)
	requireEpoch(t, 3, opening(t, b, e))
	require.Len(t, e.epochs.raised(), 3, "once more for each raise that nobody knew of, and never again")
}

func opening(t *testing.T, b *rabbitmq.Broker, e rabbitmq.Epochs) *rabbitmq.Publisher {
	t.Helper()
	p, err := rabbitmq.NewPublisher(b, e, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	run(t, p)
	return p
}

// A process that is frozen while it marks a new life holds up the others for a while only.
func TestEpoch_FrozenPublisherHoldsUpNobodyForEver(t *testing.T) {
	t.Parallel()
	url := devtest.AMQP(t)
	namespace := devtest.Namespace(t, topic)
	ch := admin(t, url)
	_, err := ch.QueueDeclare(namespace+".epoch.lock", false, false, true, false, nil)
	require.NoError(t, err)
	e := &epochs{}
	b := at(t, url, rabbitmq.Config{Namespace: namespace, CallTimeout: 500 * time.Millisecond})
	p, err := rabbitmq.NewPublisher(b, e, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	start := time.Now()
	run(t, p)
	requireEpoch(t, 1, p)
	require.Greater(t, time.Since(start), time.Second, "it has waited")
	require.Equal(t, []bool{true}, e.raised())
}

func TestEpoch_RestartsInARowRaiseOnceEach(t *testing.T) {
	t.Parallel()
	const restarts = 3
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	all := []*rabbitmq.Publisher{checking(t, b, e), checking(t, b, e), checking(t, b, e)}
	for life := int64(1); ; life++ {
		requireEpoch(t, life, all...)
		require.Len(t, e.raised(), int(life))
		if life > restarts {
			break
		}
		require.NoError(t, server.Kill())
		require.NoError(t, server.Start(t.Context()))
	}
}

// The exchange stays when its plugin is disabled, and what it held does not; nothing shows that once the plugin is back.
func TestEpoch_DisabledPluginIsALostLife(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	e := &epochs{}
	b := at(t, server.URL(), rabbitmq.Config{})
	a, other := checking(t, b, e), checking(t, b, e)
	requireEpoch(t, 1, a, other)
	away := func(p *rabbitmq.Publisher) func() bool {
		return func() bool { return strings.Contains(p.State().Reason, rabbitmq.ErrNoDelayedExchange.Error()) }
	}

	// Noticed without publishing anything.
	require.NoError(t, server.SetPlugin(t.Context(), false))
	require.Eventually(t, away(a), patience, tick)
	require.Eventually(t, away(other), patience, tick)
	require.Equal(t, []bool{true}, e.raised(), "not with each attempt")
	require.NoError(t, server.SetPlugin(t.Context(), true))
	requireEpoch(t, 2, a, other)
	require.Equal(t, []bool{true, true}, e.raised())

	// While messages are published: it is none of theirs.
	disabled, publishing := make(chan struct{}), make(chan struct{})
	receipts := make(chan []outbox.Receipt, 1)
	go func() {
		var all []outbox.Receipt
		for id := int64(1); ; id += 20 {
			all = append(all, a.Publish(context.WithoutCancel(t.Context()), publications(id, 20, time.Now().Add(time.Hour)))...)
			if id == 1 {
				close(publishing)
			}
			select {
			case <-disabled:
				receipts <- all
				return
			default:
			}
		}
	}()
	<-publishing
	require.NoError(t, server.SetPlugin(t.Context(), false))
	require.Eventually(t, away(a), patience, tick)
	close(disabled)
	// The broker restarts as well, without the plugin.
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	require.Eventually(t, away(other), patience, tick)
	require.NoError(t, server.SetPlugin(t.Context(), true))
	requireEpoch(t, 3, a, other)
	require.Equal(t, []bool{true, true, true}, e.raised())
	for i, r := range <-receipts {
		require.NotErrorIs(t, r.Err, outbox.ErrUnpublishable, "receipt %d", i)
	}
}
