package worker

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duebox/duebox/outbox/rabbitmq"
)

// stopwatch adds up the times for which it runs. The zero value stands still.
type stopwatch struct {
	mu    sync.Mutex
	total time.Duration
	since time.Time // zero: it stands still
}

func (s *stopwatch) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		s.total += time.Since(s.since)
		s.since = time.Time{}
	}
}

func (s *stopwatch) read() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.total
	}
	return s.total + time.Since(s.since)
}

// blockedTime shows for how long connections of a role were blocked, the time until now included.
func blockedTime(role string, s *stopwatch) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "duebox_broker_blocked_seconds_total", Help: "For how long the broker has taken no messages, by role.",
		ConstLabels: prometheus.Labels{"role": role},
	}, func() float64 { return s.read().Seconds() })
}

func roles() []string { return []string{rabbitmq.RolePublisher, rabbitmq.RoleConsumer} }

// queueMetrics shows the work queues as the worker has last seen them.
type queueMetrics struct {
	consumer         *rabbitmq.Consumer
	ready, consumers *prometheus.Desc
}

func newQueueMetrics(c *rabbitmq.Consumer) *queueMetrics {
	const seen = " as the broker said at most 15 s ago; not shown while this worker does not consume it."
	return &queueMetrics{
		consumer:  c,
		ready:     prometheus.NewDesc("duebox_queue_ready", "Messages of a topic's work queue that no consumer has been given,"+seen, []string{"topic"}, nil),
		consumers: prometheus.NewDesc("duebox_queue_consumers", "Consumers of a topic's work queue,"+seen, []string{"topic"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *queueMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.ready
	ch <- m.consumers
}

// Collect implements prometheus.Collector.
func (m *queueMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, q := range m.consumer.Queues() {
		ch <- prometheus.MustNewConstMetric(m.ready, prometheus.GaugeValue, float64(q.Ready), q.Topic)
		ch <- prometheus.MustNewConstMetric(m.consumers, prometheus.GaugeValue, float64(q.Consumers), q.Topic)
	}
}
