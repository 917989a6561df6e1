package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duebox/duebox/outbox"
)

const (
	// How long what the ledger said is shown before it is asked again, however many ask for metrics and how often.
	ledgerFresh = 15 * time.Second
	// How long an answer of the ledger is waited for. Without one the scrape goes on, and shows that.
	ledgerPatience = 3 * time.Second
)

// ledgerMetrics is what is read from the ledger when metrics are asked for.
type ledgerMetrics struct {
	store  *outbox.Store
	topics []string // those that are shown also when they have no message

	up, messages, more, overdue, offset *prometheus.Desc

	mu     sync.Mutex
	at     time.Time // when the ledger was last asked
	states map[outbox.State]outbox.Backlog
	err    error
}

// waiting are the states in which messages wait for somebody.
func waiting() []outbox.State { return []outbox.State{outbox.Scheduled, outbox.Published, outbox.Dead} }

func newLedgerMetrics(store *outbox.Store, topics []string) *ledgerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &ledgerMetrics{
		store: store, topics: topics,
		up: desc("duebox_ledger_up", "1 if the database answered within 3 s when it was last asked for what follows, at most 15 s ago."),
		messages: desc("duebox_messages", "Messages that are scheduled (pending), published (in flight) or dead. Up to 1,000 of each state and shard are "+
			"counted, those that come first; the same for all workers. Beyond the 100 topics with the most, topics that no worker here consumes are "+
			"counted together, as (others).", "topic", "state"),
		more: desc("duebox_messages_more", "1 if there may be more messages of a state than were counted.", "state"),
		overdue: desc("duebox_oldest_due_seconds", "How long ago the oldest message was due that has taken no effect, of those that are counted, however often "+
			"it has been tried; 0: none is late.", "state"),
		offset: desc("duebox_clock_offset_seconds", "How far the database's clock is ahead of this process's."),
	}
}

// Describe implements prometheus.Collector.
func (m *ledgerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.messages, m.more, m.overdue, m.offset} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It asks the ledger if it has not for a while.
func (m *ledgerMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || time.Since(m.at) > ledgerFresh {
		m.read()
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if offset, ok := m.store.ClockOffset(); ok {
		gauge(m.offset, offset.Seconds())
	}
	if m.err != nil {
		gauge(m.up, 0)
		return
	}
	gauge(m.up, 1)
	for state, b := range m.states {
		for _, topic := range m.topics {
			if _, ok := b.Topics[topic]; !ok {
				gauge(m.messages, 0, topic, string(state))
			}
		}
		for topic, n := range m.shown(b.Topics) {
			gauge(m.messages, float64(n), topic, string(state))
		}
		more := 0.0
		if b.More {
			more = 1
		}
		gauge(m.more, more, string(state))
		if state != outbox.Dead { // which waits for no time
			gauge(m.overdue, max(0, b.Overdue.Seconds()), string(state))
		}
	}
}

const (
	shownTopics = 100        // beside the worker's own: who may enqueue may make up topics, and each is a series for ever
	otherTopics = "(others)" // is no topic
)

// shown is counts with the smallest of many topics together.
func (m *ledgerMetrics) shown(counts map[string]int) map[string]int {
	topics := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	shown := make(map[string]int, min(len(counts), shownTopics+len(m.topics)+1))
	for i, topic := range topics {
		if i >= shownTopics && !slices.Contains(m.topics, topic) {
			topic = otherTopics
		}
		// Whoever writes past the ledger's own rules must not take the other figures away.
		shown[strings.ToValidUTF8(topic, "\uFFFD")] += counts[topics[i]]
	}
	return shown
}

// read asks the ledger. A scrape has no context that would be worth more than the patience.
func (m *ledgerMetrics) read() {
	ctx, cancel := context.WithTimeout(context.Background(), ledgerPatience)
	defer cancel()
	m.states = map[outbox.State]outbox.Backlog{}
	for _, state := range waiting() {
		var b outbox.Backlog
		if b, m.err = m.store.Backlog(ctx, state); m.err != nil {
			break
		}
		m.states[state] = b
	}
	m.at = time.Now()
}
