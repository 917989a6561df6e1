package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// pluginBytes is what the upstream plugin keeps in memory for each delayed message, about: a measured figure of that plugin, quoted as such
// and measured by nobody here.
const pluginBytes = 1400

// benchBroker measures what a broker needs for the messages within the horizon, and that this is all: beside many rows that wait
// for days it needs as much as without them. The memory is what Erlang has allocated after a garbage collection of every process.
func benchBroker(ctx context.Context, s services, o options) (lines []line, err error) {
	led, err := openLedger(ctx, s.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, led.close()) }()
	near := min(o.rows, max(1, o.waiting/10))
	held := func() (float64, error) { return heldMemory(ctx, s, led, near) }
	if _, err := held(); err != nil { // nobody's first round is counted
		return nil, err
	}
	measure := func() (all []float64, err error) {
		for range o.rounds {
			m, err := held()
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
		return all, nil
	}
	alone, err := measure()
	if err != nil {
		return nil, err
	}
	if err := led.clear(ctx); err != nil {
		return nil, err
	}
	if err := led.fillMany(ctx, o.waiting, time.Microsecond); err != nil {
		return nil, err
	}
	beside, err := measure()
	if err != nil {
		return nil, err
	}
	beyond := compared("broker", fmt.Sprintf("%d messages within the horizon, %d rows waiting, beside the broker without those", near, o.waiting), unitMemory, beside, alone)
	beyond.Aim = 1.1
	beyond.Met = *beyond.Ratio <= beyond.Aim
	plugin := compared("broker", fmt.Sprintf("%d messages within the horizon, %d rows waiting, beside the plugin with all of them (quoted: %d bytes each)", near, o.waiting, pluginBytes),
		unitMemory, beside, []float64{float64(pluginBytes) * float64(o.waiting+near) / mebi})
	plugin.Aim = 1
	plugin.Met = *plugin.Ratio < plugin.Aim
	for _, l := range []line{beyond, plugin} {
		l.Exchange, l.Waiting, l.Held = s.exchange, o.waiting, near
		lines = append(lines, l)
	}
	return lines, nil
}

// heldMemory has a worker hand over n messages that are due within the horizon, and returns the memory of the broker that holds them, in MiB.
func heldMemory(ctx context.Context, s services, led *ledger, n int) (mib float64, err error) {
	if err := errors.Join(emptyBroker(ctx, s), led.clear(ctx)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the worker was too slow"))
	defer cancel()
	c, err := startChild(ctx, s, roleWorker)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := led.fill(ctx, n, dueIn, time.Microsecond); err != nil {
		return 0, err
	}
	if err := led.await(ctx, n, "state = 'published'"); err != nil {
		return 0, err
	}
	text, err := s.broker.Eval(ctx, "[erlang:garbage_collect(P) || P <- erlang:processes()], erlang:memory(total).")
	if err != nil {
		return 0, err
	}
	bytes, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the broker's memory: %w", err)
	}
	return float64(bytes) / mebi, nil
}
