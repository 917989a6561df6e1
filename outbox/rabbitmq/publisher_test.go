package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func TestPublisher_MessagesArriveCompleteAndNeverEarly(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})

	batch := publications(1, 20, time.Now().Add(300*time.Millisecond))
	for i := range batch {
		batch[i].FireAt = batch[i].FireAt.Add(time.Duration(i) * 1700 * time.Microsecond)
	}
	batch = append(batch, publications(100, 1, time.Now().Add(-time.Second))...)
	batch[20].Key, batch[20].Headers = "", nil
	receipts := p.Publish(t.Context(), batch)
	requireConfirmed(t, receipts)
	require.Equal(t, int64(1), receipts[0].Epoch)

	require.Eventually(t, func() bool { return len(in.deliveries()) == len(batch) }, patience, tick)
	sent := map[int64]outbox.Publication{}
	for _, s := range batch {
		sent[s.ID] = s
	}
	for i, got := range in.deliveries() {
		s := sent[got.ID]
		delete(sent, got.ID)
		require.False(t, in.at[i].Before(s.FireAt), "message %d is early", got.ID)
		require.Empty(t, cmp.Diff(outbox.Delivery{
			Store: s.Store, ID: s.ID, Topic: s.Topic, Key: s.Key, Generation: s.Generation, Attempt: s.Attempt,
			DueAt: s.DueAt, Payload: s.Payload, ContentType: s.ContentType, Headers: s.Headers,
		}, got))
	}
	require.Empty(t, sent)
	require.Empty(t, in.strays)
}

// mandatory would return each delayed message as unroutable; nothing of that may lead to a second publish.
func TestScenario02_DelayedMessagesArePublishedOnce(t *testing.T) {
	t.Parallel()
	b := shared(t, topic)
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	const n = 200
	requireConfirmed(t, p.Publish(t.Context(), publications(1, n, time.Now().Add(500*time.Millisecond))))
	marker := publications(n+1, 1, time.Now().Add(2*time.Second)) // after it, nothing is under way
	requireConfirmed(t, p.Publish(t.Context(), marker))
	require.Eventually(t, func() bool { return in.ids()[n+1] == 1 }, patience, tick)
	for id, times := range in.ids() {
		require.Equal(t, 1, times, "message %d", id)
	}
	require.Len(t, in.ids(), n+1)
}

func TestScenario17_CutBeforeTheConfirmIsUnknownAndTheSecondPublishHasTheSameID(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, topic)
	in := &inbox{}
	direct := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	consume(t, direct, in.handlers(), rabbitmq.ConsumerConfig{})
	network, url := through(t, devtest.AMQP(t))
	p := publisher(t, at(t, url, rabbitmq.Config{Namespace: namespace}), rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))

	network.mute()
	batch := publications(2, 50, time.Now())
	receipts := make(chan []outbox.Receipt, 1)
	go func() { receipts <- p.Publish(t.Context(), batch) }()
	require.Eventually(t, func() bool { return len(in.ids()) == 51 }, patience, tick, "the broker has them all")
	network.cut()
	for i, r := range <-receipts {
		require.ErrorIs(t, r.Err, outbox.ErrUnconfirmed, "receipt %d", i)
		require.NotErrorIs(t, r.Err, outbox.ErrNacked)
		require.NotErrorIs(t, r.Err, outbox.ErrUnpublishable, "an outage spends no attempt")
	}
	requireConfirmed(t, p.Publish(t.Context(), batch))
	require.Eventually(t, func() bool { return len(in.deliveries()) == 101 }, patience, tick)
	for id, times := range in.ids() {
		require.Equal(t, map[bool]int{true: 1, false: 2}[id == 1], times, "message %d", id)
	}
}

func TestScenario19_ManyGoroutinesShareTheChannel(t *testing.T) {
	t.Parallel()
	var lost atomic.Int32
	b := at(t, devtest.AMQP(t), rabbitmq.Config{
		Namespace: devtest.Namespace(t, topic),
		Observer:  rabbitmq.Observer{Disconnected: func(string, error) { lost.Add(1) }},
	})
	p, err := rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{Window: 7})
	require.NoError(t, err)
	stop := run(t, p)
	var callers sync.WaitGroup
	for i := range 25 {
		callers.Go(func() {
			for round := range 4 {
				batch := publications(int64(i*1000+round*40+1), 40, time.Now().Add(time.Hour))
				for _, r := range p.Publish(t.Context(), batch) {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			}
		})
	}
	callers.Wait()
	require.Zero(t, lost.Load(), "one connection was enough")
	require.NoError(t, stop())
}

func TestPublisher_WaitsForAConnectionUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	b := at(t, "amqp://127.0.0.1:1", rabbitmq.Config{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, r := range p.Publish(ctx, publications(1, 3, time.Now())) {
		require.ErrorIs(t, r.Err, context.DeadlineExceeded)
	}
	require.Eventually(t, func() bool { return strings.Contains(p.State().Reason, "connection refused") }, patience, tick)
	require.False(t, p.State().Connected)
	require.Empty(t, p.Publish(t.Context(), nil))
	require.ErrorContains(t, p.Run(t.Context()), "running already")
}

func TestPublisher_MessageThatCannotBeEncodedHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	p := publisher(t, shared(t, topic), rabbitmq.PublisherConfig{})
	batch := publications(1, 5, time.Now().Add(time.Hour))
	batch[1].Headers = map[string]string{"long": strings.Repeat("x", 200_000)}
	batch[3].FireAt = time.Now().Add(60 * 24 * time.Hour)
	receipts := p.Publish(t.Context(), batch)
	require.ErrorIs(t, receipts[1].Err, outbox.ErrUnpublishable)
	require.ErrorIs(t, receipts[3].Err, outbox.ErrTooSoon, "the exchange would fire it at once")
	for _, i := range []int{0, 2, 4} {
		require.NoError(t, receipts[i].Err)
	}
}

// The broker closes the channel for a message that is too large, and forgets the confirms of its neighbours.
func TestPublisher_MessageThatEndsTheChannelIsFoundAmongConcurrentCallers(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{Settings: []string{"max_message_size = 10000"}})
	b := at(t, server.URL(), rabbitmq.Config{})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	const callers, size, bad = 4, 60, 17
	all := make([][]outbox.Receipt, callers)
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			batch := publications(int64(c*size+1), size, time.Now())
			batch[bad].Payload = make([]byte, 20_000)
			all[c] = p.Publish(t.Context(), batch)
		})
	}
	group.Wait()
	for c, receipts := range all {
		for i, r := range receipts {
			if i == bad {
				require.ErrorIs(t, r.Err, outbox.ErrUnpublishable)
				require.ErrorContains(t, r.Err, "PRECONDITION_FAILED")
				continue
			}
			require.NoError(t, r.Err, "caller %d, receipt %d", c, i)
		}
	}
	require.Eventually(t, func() bool { return len(in.ids()) == callers*(size-1) }, patience, tick)
	requireConfirmed(t, p.Publish(t.Context(), publications(1000, 5, time.Now())))
}

// An exchange that somebody deleted is no message's fault: it is declared again with the next connection.
func TestPublisher_DeletedExchangeSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, topic)
	p := publisher(t, at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace}), rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	require.NoError(t, ch.ExchangeDelete(namespace+".delay", false, false))

	batch := publications(2, 10, time.Now().Add(time.Hour))
	confirmed := 0
	for _, r := range p.Publish(t.Context(), batch) {
		if r.Err == nil {
			confirmed++
			continue
		}
		require.ErrorIs(t, r.Err, outbox.ErrUnconfirmed)
		require.ErrorContains(t, r.Err, "NOT_FOUND")
	}
	require.Less(t, confirmed, len(batch))
	requireConfirmed(t, p.Publish(t.Context(), batch))
}

func TestPublisher_NackIsNotAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, topic)
	b := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	p := publisher(t, b, rabbitmq.PublisherConfig{})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	// A queue that is full and says so.
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	q, err := ch.QueueDeclare("", false, false, true, false, amqp.Table{amqp.QueueMaxLenArg: int64(1), amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish})
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(q.Name, topic, namespace+".deliver", false, nil))
	nacked := 0
	for _, r := range p.Publish(t.Context(), publications(2, 20, time.Now())) {
		if r.Err != nil {
			require.ErrorIs(t, r.Err, outbox.ErrNacked)
			nacked++
		}
	}
	require.Positive(t, nacked)
	require.True(t, p.State().Connected)
}

func TestPublisher_StalledSocketHoldsUpNobody(t *testing.T) {
	t.Parallel()
	network, url := through(t, devtest.AMQP(t))
	b := at(t, url, rabbitmq.Config{Namespace: devtest.Namespace(t, topic), CallTimeout: time.Second})
	p, err := rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{ConfirmTimeout: 2 * time.Second})
	require.NoError(t, err)
	stop := run(t, p)
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))

	network.stall()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	large := publications(2, 100, time.Now()) // 20 MB: more than all buffers hold
	for i := range large {
		large[i].Payload = make([]byte, 200<<10)
	}
	for _, r := range p.Publish(ctx, large) {
		require.ErrorIs(t, r.Err, context.DeadlineExceeded)
	}
	require.Less(t, time.Since(start), 2*time.Second, "Publish ends with its context")

	start = time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(start), 8*time.Second, "Run ends although nothing answers")
}

func TestPublisher_MissingConfirmIsAnUnknownOutcomeInTheEnd(t *testing.T) {
	t.Parallel()
	network, url := through(t, devtest.AMQP(t))
	b := at(t, url, rabbitmq.Config{Namespace: devtest.Namespace(t, topic)})
	p := publisher(t, b, rabbitmq.PublisherConfig{ConfirmTimeout: 500 * time.Millisecond})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	network.mute()
	for _, r := range p.Publish(t.Context(), publications(2, 2, time.Now())) {
		require.ErrorIs(t, r.Err, outbox.ErrUnconfirmed)
	}
	network.cut()
	requireConfirmed(t, p.Publish(t.Context(), publications(2, 2, time.Now())))
}

func TestScenario18_BlockedBrokerHangsNeitherPublishNorShutdownAndDrainsAfterwards(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	blocked, unblocked := make(chan string, 10), make(chan string, 10)
	b := at(t, server.URL(), rabbitmq.Config{CallTimeout: time.Second, Observer: rabbitmq.Observer{
		Blocked:   func(role, _ string) { blocked <- role },
		Unblocked: func(role string) { unblocked <- role },
	}})
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	p, err := rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{ConfirmTimeout: time.Second})
	require.NoError(t, err)
	p.CheckEvery(time.Millisecond) // so that one is under way when the broker stops reading
	run(t, p)
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 1, time.Now())))
	connected := p.State()

	alarm := func(watermark string) {
		_, err := server.Ctl(t.Context(), "set_vm_memory_high_watermark", watermark)
		require.NoError(t, err)
	}
	alarm("0.0000001")
	backlog := make(chan []outbox.Receipt, 1)
	go func() { backlog <- p.Publish(t.Context(), publications(2, 500, time.Now())) }()
	require.Equal(t, rabbitmq.RolePublisher, <-blocked)
	require.Eventually(t, func() bool { return p.State().Blocked }, patience, tick)

	// Another caller's time is up long before the broker recovers. It is longer than all timeouts above: being blocked is
	// not being dead.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for _, r := range p.Publish(ctx, publications(1000, 10, time.Now())) {
		require.ErrorIs(t, r.Err, context.DeadlineExceeded)
	}
	// A second publisher shuts down within its budget while the broker is blocked.
	other, err := rabbitmq.NewPublisher(at(t, server.URL(), rabbitmq.Config{Namespace: "other"}), &epochs{}, rabbitmq.PublisherConfig{})
	require.NoError(t, err)
	stop := run(t, other)
	require.Eventually(t, func() bool { return other.State().Blocked }, patience, tick)
	start := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(start), 8*time.Second)

	alarm("0.6")
	require.Equal(t, rabbitmq.RolePublisher, <-unblocked)
	requireConfirmed(t, <-backlog)
	require.Eventually(t, func() bool { return len(in.ids()) >= 501 }, patience, tick)
	after := p.State()
	require.True(t, after.Since.After(connected.Since), "it was blocked meanwhile")
	after.Since = connected.Since
	require.Equal(t, connected, after, "the connection has lived through it")
}

func TestPublisher_RaisesTheEpochWhenTheBrokerHasLostItsMemory(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	ledger := &epochs{}
	first := func() (*rabbitmq.Publisher, func() error) {
		p, err := rabbitmq.NewPublisher(at(t, server.URL(), rabbitmq.Config{}), ledger, rabbitmq.PublisherConfig{})
		require.NoError(t, err)
		return p, run(t, p)
	}
	epochOf := func(p *rabbitmq.Publisher, id int64) int64 {
		r := p.Publish(t.Context(), publications(id, 1, time.Now().Add(time.Hour)))
		requireConfirmed(t, r)
		return r[0].Epoch
	}
	a, _ := first()
	require.Equal(t, int64(1), epochOf(a, 1), "a broker never seen is an empty one")
	require.Equal(t, []bool{true}, ledger.raised())

	// Another connection in the same life raises nothing.
	second, stop := first()
	require.Equal(t, int64(1), epochOf(second, 2))
	require.NoError(t, stop())

	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))
	require.Eventually(t, func() bool { return a.State().Epoch == 2 && a.State().Connected }, patience, tick, "also when nothing is published")
	require.Equal(t, int64(2), epochOf(a, 3))
	require.Equal(t, []bool{true, false}, ledger.raised())

	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	require.Equal(t, int64(3), epochOf(a, 4))

	require.NoError(t, server.Wipe())
	require.NoError(t, server.Start(t.Context()))
	require.Equal(t, int64(4), epochOf(a, 5))
	require.Equal(t, []bool{true, false, false, true}, ledger.raised())

	require.NoError(t, server.Rename())
	require.NoError(t, server.Start(t.Context()))
	require.Equal(t, int64(5), epochOf(a, 6))
	require.Equal(t, []bool{true, false, false, true, true}, ledger.raised())
}

// On a cluster, the queue of the mark is out of reach while its node is down: it can neither be found nor made. One node shows
// the same for a queue that has crashed.
func TestPublisher_GoesOnWhenTheMarkIsOutOfReach(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	ledger := &epochs{}
	network, url := through(t, server.URL())
	b := at(t, url, rabbitmq.Config{})
	p, other := checking(t, b, ledger), checking(t, b, ledger)
	requireEpoch(t, 1, p, other)
	publishesIn := func(epoch int64, all ...*rabbitmq.Publisher) {
		for _, p := range all {
			require.Eventually(t, func() bool {
				r := p.Publish(t.Context(), publications(2, 1, time.Now()))
				return r[0].Err == nil && r[0].Epoch == epoch
			}, patience, tick)
		}
	}
	eval := func(expressions string) {
		out, err := server.Eval(t.Context(), `N = rabbit_misc:r(<<"/">>, queue, <<"duebox.epoch">>), `+expressions)
		require.NoError(t, err, out)
	}
	eval(`F = fun(Q) -> amqqueue:set_state(Q, crashed) end,
		_ = code:ensure_loaded(rabbit_db_queue),
		case erlang:function_exported(rabbit_db_queue, update, 2) of
			true -> rabbit_db_queue:update(N, F);
			false -> {ok, Q} = rabbit_amqqueue:lookup(N),
				rabbit_misc:execute_mnesia_transaction(fun() -> mnesia:write(rabbit_queue, F(Q), write) end)
		end.`)
	for round := range 3 {
		network.cut()
		// Each of them raises it once, and follows the other.
		publishesIn(3, p, other)
		require.Equal(t, []bool{true, true, true}, ledger.raised(), "not with each connection (round %d)", round)
	}
	require.Never(t, func() bool { return len(ledger.raised()) > 3 }, 10*often, tick, "nor with each check")

	// A queue that is really gone is a loss, and then there is a mark again.
	eval(`[mnesia:dirty_delete(T, N) || T <- [rabbit_queue, rabbit_durable_queue]].`)
	for range 2 {
		network.cut()
		publishesIn(4, p, other)
		require.Len(t, ledger.raised(), 4)
	}
}

func TestScenario11_BrokerWithoutTheExchangeTypeIsToldApartWithoutDisturbance(t *testing.T) {
	t.Parallel()
	server := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone})
	var lost atomic.Int32
	b := at(t, server.URL(), rabbitmq.Config{Observer: rabbitmq.Observer{Disconnected: func(role string, err error) {
		if role == rabbitmq.RoleConsumer {
			lost.Add(1)
		}
	}}})
	_, stop := consume(t, b, (&inbox{}).handlers(), rabbitmq.ConsumerConfig{})
	delayed, err := b.Probe(t.Context())
	require.NoError(t, err)
	require.False(t, delayed)
	ledger := &epochs{}
	p := checking(t, b, ledger)
	require.Eventually(t, func() bool {
		return strings.Contains(p.State().Reason, rabbitmq.ErrNoDelayedExchange.Error())
	}, patience, tick)
	require.Never(t, func() bool { return len(ledger.raised()) > 0 }, time.Second, tick, "a broker that cannot be used begins no life")
	require.Zero(t, lost.Load(), "the consumer's connection is undisturbed")
	require.NoError(t, stop())

	delayed, err = shared(t).Probe(t.Context())
	require.NoError(t, err)
	require.True(t, delayed)
}

// The broker is empty, and no consumer is back yet.
func TestPublisher_DueMessagesFindTheirQueueBeforeAnyConsumer(t *testing.T) {
	t.Parallel()
	b := shared(t, topic, "other")
	p := publisher(t, b, rabbitmq.PublisherConfig{Topics: []string{topic, "other"}})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
	requireDepth(t, b, 20, 0)
	ready, consumers, err := b.Depth(t.Context(), "other")
	require.NoError(t, err)
	require.Zero(t, ready+consumers)
	in := &inbox{}
	consume(t, b, in.handlers(), rabbitmq.ConsumerConfig{})
	require.Eventually(t, func() bool { return len(in.ids()) == 20 }, patience, tick)
	require.Empty(t, in.takenUnrouted())
}

// Changed settings stop the consumer, which says so, and not the messages.
func TestPublisher_GoesOnWhenAWorkQueueHasOtherArguments(t *testing.T) {
	t.Parallel()
	namespace := devtest.Namespace(t, topic)
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	work := namespace + ".work." + topic
	_, err = ch.QueueDeclare(work, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
	require.NoError(t, err)
	b := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: namespace})
	p := publisher(t, b, rabbitmq.PublisherConfig{Topics: []string{topic}})
	requireConfirmed(t, p.Publish(t.Context(), publications(1, 20, time.Now())))
}

func TestNewPublisher_Validates(t *testing.T) {
	t.Parallel()
	b := at(t, "amqp://localhost", rabbitmq.Config{})
	for i, build := range []func() (*rabbitmq.Publisher, error){
		func() (*rabbitmq.Publisher, error) {
			return rabbitmq.NewPublisher(nil, &epochs{}, rabbitmq.PublisherConfig{})
		},
		func() (*rabbitmq.Publisher, error) { return rabbitmq.NewPublisher(b, nil, rabbitmq.PublisherConfig{}) },
		func() (*rabbitmq.Publisher, error) {
			return rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{Strategy: "hope"})
		},
		func() (*rabbitmq.Publisher, error) {
			return rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{Window: -1})
		},
		func() (*rabbitmq.Publisher, error) {
			return rabbitmq.NewPublisher(b, &epochs{}, rabbitmq.PublisherConfig{Topics: []string{"a", "with space"}})
		},
	} {
		_, err := build()
		require.Error(t, err, fmt.Sprint(i))
	}
}
