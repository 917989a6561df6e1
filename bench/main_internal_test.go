package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" { // a benchmark has started us
		os.Exit(childProcess(role))
	}
	goleak.VerifyTestMain(m)
}

func TestRun_RefusesWrongArguments(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"unknown benchmark": {"rely"},
		"unknown flag":      {"-fast"},
		"no rounds":         {"-rounds", "0", "relay"},
		"profile nowhere":   {"-profile", "/does/not/exist", "relay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, log bytes.Buffer
			require.Equal(t, 2, run(t.Context(), args, &out, &log))
			require.Empty(t, out.String())
			require.NotEmpty(t, log.String())
		})
	}
}

func TestRun_HelpNamesEveryBenchmarkAndWhatItMeasures(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"-h"}, &out, &log))
	require.Empty(t, log.String())
	require.True(t, strings.HasPrefix(out.String(), "Usage: bench [flags] [NAME...]\n"))
	require.Len(t, purposes(), len(benchmarkNames()), "no purpose of what is no benchmark")
	for _, name := range benchmarkNames() {
		require.Regexp(t, `(?m)^  `+name+` +\w.{20,}$`, out.String())
	}
	for _, flag := range []string{"ahead", "idle", "waiting", "few", "quiet", "stored", "docs"} {
		require.Contains(t, out.String(), "\n  -"+flag+" ")
	}
}

func TestRelaying_CountsProcesses(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1 process", relaying{processes: 1}.workers())
	require.Equal(t, "4 processes", relaying{processes: 4}.workers())
}

func TestSettings_AreReadOfABenchmarkWithoutABroker(t *testing.T) {
	t.Parallel()
	set, err := services{dsn: devtest.Database(t)}.settings(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, set.Database)
	require.Positive(t, set.BufferPoolMB)
	require.NotNil(t, set.FlushAtCommit)
	require.Empty(t, set.Broker)
	_, err = services{dsn: devtest.Database(t), amqp: "amqp://127.0.0.1:1/"}.settings(t.Context())
	require.Error(t, err, "a broker that does not answer is no benchmark without one")
}

func TestRun_SaysWhatCouldNotBeMeasured(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, log bytes.Buffer
	require.Equal(t, 1, run(ctx, []string{"enqueue"}, &out, &log))
	require.Empty(t, out.String())
	require.Contains(t, log.String(), "bench: enqueue: ")
}

func TestReport_OnlyARequiredAimThatIsMissedIsAnError(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		l    line
		code int
	}{
		"required, missed":     {line{required: true}, 1},
		"required, met":        {line{required: true, Met: true}, 0},
		"not required, missed": {line{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.Equal(t, want.code, report(want.l, &out, io.Discard))
			require.NotEmpty(t, out.String())
		})
	}
}

func TestChoose_TakesAllWithoutAName(t *testing.T) {
	t.Parallel()
	all, err := choose(nil)
	require.NoError(t, err)
	require.Len(t, all, len(benchmarks()))
	some, err := choose([]string{"memory", "relay"})
	require.NoError(t, err)
	require.Equal(t, []string{"memory", "relay"}, []string{some[0].name, some[1].name})
}

// small is enough to go through every statement of a benchmark, twice.
func small() options {
	return options{
		rounds: 2, rows: 200, waiting: 2000, orders: 40, held: 400, ahead: 25 * time.Second, idle: 20, closing: 200, burst: 300, lead: 5 * time.Second, published: 2000,
		few: 300, calls: 20, quiet: 2 * time.Second, log: io.Discard,
	}
}

func TestBenchmarks_MeasureOnTheRealServices(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	for _, measure := range []struct {
		name string
		run  func(context.Context, services, options) (line, error)
	}{
		{"relay", benchRelay(relaying{"relay", rabbitmq.Plugin, rabbitmq.Quorum, 1, 0.8})},
		{"relay", benchRelay(relaying{"relay", rabbitmq.Plugin, rabbitmq.Quorum, 2, 0.8})},
		{"relay", benchRelay(relaying{"relay", rabbitmq.Hold, rabbitmq.Quorum, 1, 0.8})},
		{"relay", benchRelay(relaying{"relay", rabbitmq.Tiers, rabbitmq.Quorum, 1, 0.8})},
		{"close", benchClose(rabbitmq.Plugin)},
		{"standin", benchStandIn},
		{"recovery", benchRecovery},
	} {
		s := services{dsn: devtest.Database(t), amqp: broker.URL(), exchange: broker.Exchange(), broker: broker}
		l, err := measure.run(t.Context(), s, small())
		require.NoError(t, err, measure.name)
		require.Equal(t, measure.name, l.Bench)
		require.Equal(t, broker.Exchange(), l.Exchange)
		require.Positive(t, l.Min)
		if measure.name == "recovery" {
			require.Equal(t, 400, l.InFlight)
			require.Positive(t, l.RearmS)
			require.Zero(t, *l.LateAfterRecovery)
			continue
		}
		require.Equal(t, 2, l.Rounds)
		require.Positive(t, *l.Ratio)
	}
}

func TestBenchReconcile_MeasuresOnTheRealServices(t *testing.T) {
	t.Parallel()
	l, err := benchReconcile(t.Context(), services{dsn: devtest.Database(t), amqp: devtest.AMQP(t)}, small())
	require.NoError(t, err)
	require.Equal(t, 2000, l.Rows)
	require.Positive(t, l.Seconds)
	require.Greater(t, l.PeakRSSMB, 1.0)
}

func TestBenchLateness_MeasuresOnTheRealServices(t *testing.T) {
	t.Parallel()
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{})
	for _, strategy := range []rabbitmq.Strategy{rabbitmq.Plugin, rabbitmq.Hold, rabbitmq.Tiers} {
		s := services{dsn: devtest.Database(t), amqp: broker.URL(), exchange: broker.Exchange(), broker: broker}
		l, err := benchLateness(strategy, time.Second, time.Second)(t.Context(), s, small())
		require.NoError(t, err)
		require.Equal(t, "lateness", l.Bench)
		require.Equal(t, string(strategy), l.Strategy)
		require.Equal(t, 300, l.Burst)
		require.Positive(t, l.IdleP50Ms)
		require.GreaterOrEqual(t, l.IdleP99Ms, l.IdleP50Ms)
		require.Positive(t, l.BurstP99Ms)
		require.Positive(t, l.BareIdleP99Ms)
		require.Positive(t, l.BareBurstP99Ms)
		require.Zero(t, *l.Early)
	}
}

func TestDrainRound_EndsWhenTheBrokerIsNotThere(t *testing.T) {
	t.Parallel()
	led, err := openLedger(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, led.close()) }()
	r := relaying{"relay", rabbitmq.Plugin, rabbitmq.Quorum, 1, 0.8}
	_, err = r.drainRound(t.Context(), services{amqp: "amqp://127.0.0.1:1/"}, led, 1, time.Second)
	require.ErrorContains(t, err, "connect to the broker")
}
