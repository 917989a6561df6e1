package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

func TestScenario09_ConsumerThatFailsFiveTimesPausesLongerEachTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	const first = 100 * time.Millisecond
	pause := func(attempts int) time.Duration { return first << (attempts - 1) }
	var (
		mu   sync.Mutex
		runs []time.Time
	)
	p.start(t, worker.Config{Backoff: pause}, map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
		mu.Lock()
		runs = append(runs, time.Now())
		n := len(runs)
		mu.Unlock()
		if n <= 5 {
			return errors.New("not today")
		}
		return written(ctx, tx, d)
	}})
	id := p.enqueue(t, outbox.Message{Topic: topic})[0]
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == 1 }, patience, tick)

	mu.Lock()
	defer mu.Unlock()
	require.Len(t, runs, 6)
	for i := range 5 {
		require.GreaterOrEqual(t, runs[i+1].Sub(runs[i]), pause(i+1), "pause %d", i+1)
	}
	row, err := p.store.LookupID(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 5, row.Attempts)
	require.Equal(t, "not today", row.LastError)
	p.requireOnce(t, 1)
}

func TestWorker_LeavesAMessageDeadAfterItsAttempts(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{MaxAttempts: 3, Backoff: func(int) time.Duration { return time.Millisecond }},
		map[string]worker.Effect{topic: func(context.Context, *gorm.DB, outbox.Delivery) error { panic("always") }})
	id := p.enqueue(t, outbox.Message{Topic: topic})[0]
	require.Eventually(t, func() bool { return p.inState(t, outbox.Dead) == 1 }, patience, tick)
	row, err := p.store.LookupID(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 3, row.Attempts)
	require.Contains(t, row.LastError, "panic: always")
	require.Eventually(t, func() bool { // it is counted after the commit
		return containsLine(get(t, w.Routes(), "/metrics", "").Body.String(), `duebox_dead_total{reason="attempts"} 1`)
	}, patience, tick)
}

func TestWorker_TakesUpItsBacklogAfterARestart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	const messages = 3000
	effects := map[string]worker.Effect{topic: written}
	_, stop := p.start(t, worker.Config{}, effects)
	p.enqueue(t, repeat(messages/2)...)
	require.Eventually(t, func() bool { return p.count(t, `SELECT COUNT(*) FROM effects`) > 0 }, patience, tick)
	require.NoError(t, stop()) // somewhere in the middle
	p.enqueue(t, repeat(messages/2)...)

	p.start(t, worker.Config{}, effects)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
}

func TestWorker_SharesTheWorkWithOthers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	const messages = 1000
	var mu sync.Mutex
	by := map[int]int{}
	for n := range 3 {
		p.start(t, worker.Config{}, map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
			mu.Lock()
			by[n]++
			mu.Unlock()
			return written(ctx, tx, d)
		}})
	}
	// Every worker has its consumer before there is anything to consume.
	require.Eventually(t, func() bool { return p.count(t, `SELECT COUNT(*) FROM outbox_relays`) == 3 }, patience, tick)
	p.enqueue(t, repeat(messages)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == messages }, patience, tick)
	p.requireOnce(t, messages)
}

func TestWorker_FinishesWhatIsInFlightBeforeItEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w, stop := p.start(t, worker.Config{}, map[string]worker.Effect{topic: func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
		once.Do(func() { close(begun) })
		select {
		case <-goOn:
			return written(ctx, tx, d)
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	p.enqueue(t, outbox.Message{Topic: topic})
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	require.Eventually(t, func() bool { return w.Readiness(t.Context()).Status == "draining" }, patience, tick)
	require.Empty(t, ended)
	close(goOn)
	require.NoError(t, <-ended)
	p.requireOnce(t, 1)
	require.Equal(t, 1, p.inState(t, outbox.Done))
	// The shards are free for the next one, and it has signed off.
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_shards WHERE owner IS NOT NULL`))
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_relays`))
}

func TestWorker_EndsWithinItsBudgetWhateverAnEffectDoes(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	for name, c := range map[string]struct {
		until   func(ctx context.Context) <-chan struct{}
		overran string
	}{
		"as long as it may": {func(ctx context.Context) <-chan struct{} { return ctx.Done() }, "0"},
		"for ever":          {func(context.Context) <-chan struct{} { return goOn }, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, topic)
			begun := make(chan struct{}, 100)
			w, stop := p.start(t, worker.Config{DrainTimeout: 2 * time.Second}, map[string]worker.Effect{topic: func(ctx context.Context, _ *gorm.DB, _ outbox.Delivery) error {
				begun <- struct{}{}
				<-c.until(ctx)
				return ctx.Err()
			}})
			p.enqueue(t, outbox.Message{Topic: topic})
			<-begun
			start := time.Now()
			require.NoError(t, stop())
			require.Less(t, time.Since(start), 10*time.Second)
			require.Zero(t, p.count(t, `SELECT COALESCE(SUM(attempts), 0) FROM outbox_messages`), "being told to end spends no attempt")
			require.True(t, containsLine(get(t, w.Routes(), "/metrics", "").Body.String(), `duebox_overran_effects{topic="`+topic+`"} `+c.overran))
		})
	}
	t.Cleanup(func() { close(goOn) })
}

func TestScenario31_RoutineNeverOverlapsAndSurvivesAPanic(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	var (
		mu                    sync.Mutex
		runs, together, worst int
	)
	// Longer than its interval, and the first run panics.
	slow := func(ctx context.Context) error {
		mu.Lock()
		runs++
		together++
		worst = max(worst, together)
		first := runs == 1
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			together--
		}()
		if first {
			panic("once")
		}
		select {
		case <-time.After(1500 * time.Millisecond):
			return errors.New("logged, and no more")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.start(t, worker.Config{Routines: []worker.Routine{{Name: "slow", Schedule: "@every 1s", Run: slow}}}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return runs >= 4
	}, patience, tick)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 1, worst)
}

func TestWorker_EndsItsRoutinesWhenItDrains(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	_, stop := p.start(t, worker.Config{Routines: []worker.Routine{{Name: "long", Schedule: "@every 1s", Run: func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	}}}}, map[string]worker.Effect{topic: written})
	<-begun
	require.NoError(t, stop())
	require.Len(t, ended, 1, "Run returns after its routines")
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://localhost", "n")
	effects := map[string]worker.Effect{topic: written}
	for want, construct := range map[string]func() (*worker.Worker, error){
		"database handle": func() (*worker.Worker, error) { return worker.New(nil, p.amqpURL, effects, worker.Config{}) },
		"effect":          func() (*worker.Worker, error) { return worker.New(p.db, p.amqpURL, nil, worker.Config{}) },
		"URL":             func() (*worker.Worker, error) { return worker.New(p.db, "http://x", effects, worker.Config{}) },
		"DrainTimeout": func() (*worker.Worker, error) {
			return worker.New(p.db, p.amqpURL, effects, worker.Config{DrainTimeout: -1})
		},
		"schedule \"every minute\" of reconcile": func() (*worker.Worker, error) {
			return worker.New(p.db, p.amqpURL, effects, worker.Config{ReconcileSchedule: "every minute"})
		},
		"topic": func() (*worker.Worker, error) {
			return worker.New(p.db, p.amqpURL, map[string]worker.Effect{"a b": written}, worker.Config{})
		},
		"no Run": func() (*worker.Worker, error) {
			return worker.New(p.db, p.amqpURL, effects, worker.Config{Routines: []worker.Routine{{Name: "x", Schedule: "@hourly"}}})
		},
	} {
		_, err := construct()
		require.ErrorContains(t, err, want)
	}
}

func TestWorker_SaysThatItsAddressIsTaken(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, err := worker.New(p.db, p.amqpURL, map[string]worker.Effect{topic: written}, worker.Config{HTTPAddr: "256.0.0.1:1"})
	require.NoError(t, err)
	require.ErrorContains(t, w.Run(t.Context()), "listen")
}
