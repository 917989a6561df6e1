package rabbitmq

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

func TestTiers_EachWayIntoTheBroker(t *testing.T) {
	t.Parallel()
	b, err := NewBroker("amqp://localhost", Config{})
	require.NoError(t, err)
	s := newTiers(b, []time.Duration{10 * time.Second, time.Minute, 24 * time.Hour})
	now := time.Now()
	for left, want := range map[time.Duration]string{
		-time.Second:              "deliver",
		0:                         "deliver",
		1:                         "",
		9 * time.Second:           "",
		9899 * time.Millisecond:   "",
		9901 * time.Millisecond:   "tier.10000",
		10 * time.Second:          "tier.10000",
		10*time.Second + 1:        "",
		59 * time.Second:          "",
		59_950 * time.Millisecond: "tier.60000",
		time.Minute:               "tier.60000",
		time.Hour:                 "",
		24 * time.Hour:            "tier.86400000",
		25 * time.Hour:            "",
		1<<63 - 1 - 24*time.Hour:  "",
	} {
		p := sample()
		p.FireAt, p.Shard = now.Add(left), 6
		got, err := s.route(&p, now)
		require.Zero(t, got.delay, "the header x-delay is another strategy's")
		switch want {
		case "":
			require.ErrorIs(t, err, outbox.ErrTooSoon, left)
		case "deliver":
			require.Equal(t, "duebox.deliver", got.exchange, left)
		default:
			require.Regexp(t, "^duebox."+want+".2.[0-9a-f]{8}$", got.exchange, left)
		}
	}
}

// Scenario 14: whatever a queue is declared with is in its name.
func TestScenario14_NamesOfTiersHoldTheirArguments(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	add := func(what string, cfg Config, change func(amqp.Table)) {
		b, err := NewBroker("amqp://localhost", cfg)
		require.NoError(t, err)
		args := b.tierArgs(time.Minute)
		change(args)
		name := b.tier(time.Minute, 0, args)
		require.NotContains(t, names, name, what)
		names[name] = what
		require.Equal(t, name, b.tier(time.Minute, 0, args), "the same for the same")
	}
	add("as it is", Config{}, func(amqp.Table) {})
	add("queue type", Config{QueueType: Classic}, func(amqp.Table) {})
	add("namespace", Config{Namespace: "other"}, func(amqp.Table) {})
	b, err := NewBroker("amqp://localhost", Config{})
	require.NoError(t, err)
	for name := range b.tierArgs(time.Minute) {
		add("without "+name, Config{}, func(args amqp.Table) { delete(args, name) })
		add("other "+name, Config{}, func(args amqp.Table) { args[name] = fmt.Sprint(args[name]) + "0" })
	}
	add("more", Config{}, func(args amqp.Table) { args["x-max-length"] = 1 })
	require.NotContains(t, b.tierArgs(time.Minute), "x-expires", "it deletes a queue with what is in it")
}

func TestNewPublisher_RefusesTiersThatCannotWork(t *testing.T) {
	t.Parallel()
	b, err := NewBroker("amqp://localhost", Config{})
	require.NoError(t, err)
	for problem, tiers := range map[string][]time.Duration{
		"there are 0 tiers":              {},
		"there are 17 tiers":             make([]time.Duration, 17),
		"tier 1m0s is there twice":       {time.Minute, time.Second, 60 * time.Second},
		"tier 999ms is not from":         {999 * time.Millisecond},
		"tier 1176h0m0.001s is not":      {49*24*time.Hour + time.Millisecond},
		"tier 1.0005s is not of whole m": {1000500 * time.Microsecond},
	} {
		_, err := NewPublisher(b, noEpochs{}, PublisherConfig{Strategy: Tiers, Tiers: tiers})
		require.ErrorContains(t, err, problem)
	}
	p, err := NewPublisher(b, noEpochs{}, PublisherConfig{Strategy: Tiers})
	require.NoError(t, err)
	require.Equal(t, outbox.Reach{Delays: []time.Duration{24 * time.Hour, 30 * time.Minute, 10 * time.Minute}}, p.Reach(), "before it is connected")
}

type noEpochs struct{ Epochs }
