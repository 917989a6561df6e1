package worker

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// The values of labels. Those of a delivery's outcome are outbox.Outcome.
const (
	confirmed     = "confirmed"
	nacked        = "nacked"
	unpublishable = "unpublishable"
	unconfirmed   = "unconfirmed"
	notSent       = "not_sent"

	runCompleted = "completed"
	runSkipped   = "skipped"
	runError     = "error"
)

type metrics struct {
	published   *prometheus.CounterVec
	confirm     prometheus.Histogram
	deliveries  *prometheus.CounterVec
	lateness    *prometheus.HistogramVec
	settled     prometheus.Counter
	moved       prometheus.Counter
	lostLeases  prometheus.Counter
	repairs     *prometheus.CounterVec
	dead        *prometheus.CounterVec
	runs        *prometheus.CounterVec
	runSeconds  *prometheus.HistogramVec
	lastRun     *prometheus.GaugeVec
	found       *prometheus.CounterVec
	mended      *prometheus.CounterVec
	connected   *prometheus.GaugeVec
	connects    *prometheus.CounterVec
	disconnects *prometheus.CounterVec
	blocked     *prometheus.GaugeVec
	blockedFor  map[string]*stopwatch // by role
	malformed   *prometheus.CounterVec
	overran     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		published: counter("duebox_published_total", "Messages handed to the broker, by what came of it.", "outcome"),
		confirm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "duebox_confirm_seconds", Help: "Time until the broker has confirmed a batch, once for each of its messages.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 15),
		}),
		deliveries: counter("duebox_deliveries_total", "Deliveries that are dealt with, by topic and what came of them.", "topic", "outcome"),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "duebox_lateness_seconds", Help: "Database time just after an effect's commit minus its due time.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"topic"}),
		settled:    prometheus.NewCounter(prometheus.CounterOpts{Name: "duebox_settled_total", Help: "Messages marked published."}),
		moved:      prometheus.NewCounter(prometheus.CounterOpts{Name: "duebox_settle_moved_total", Help: "Confirmed messages left alone because their row had moved on."}),
		lostLeases: prometheus.NewCounter(prometheus.CounterOpts{Name: "duebox_lost_leases_total", Help: "Shards lost to another relay or to time."}),
		repairs:    counter("duebox_repairs_total", "Published messages that were scheduled again, by reason.", "reason"),
		dead:       counter("duebox_dead_total", "Messages that have become dead and wait for an operator, by reason.", "reason"),
		runs:       counter("duebox_reconcile_runs_total", "Runs of the reconciler, by kind and how they ended.", "kind", "outcome"),
		runSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "duebox_reconcile_seconds", Help: "How long a run of the reconciler took.", Buckets: prometheus.ExponentialBuckets(.005, 4, 11),
		}, []string{"kind"}),
		lastRun:     gauge("duebox_reconcile_last_success_timestamp_seconds", "When a run of this kind was last completed, by any worker; 0: not known yet.", "kind"),
		found:       counter("duebox_reconcile_found_total", "What runs of the reconciler have found, by kind; what stays is found again.", "finding"),
		mended:      counter("duebox_reconcile_mended_total", "What they have mended of it.", "finding"),
		connected:   gauge("duebox_broker_connected", "1 while there is a connection for this role and everything is declared.", "role"),
		connects:    counter("duebox_broker_connects_total", "Connections that have been made, by role.", "role"),
		blockedFor:  map[string]*stopwatch{},
		disconnects: counter("duebox_broker_disconnects_total", "Connections that have ended, by role.", "role"),
		blocked:     gauge("duebox_broker_blocked", "1 while the broker takes no messages, for example because its memory is full.", "role"),
		malformed:   counter("duebox_malformed_total", "Deliveries that could not be read and were kept for an operator.", "queue"),
		overran:     gauge("duebox_overran_effects", "Effects that were given up because they did not return, and still run; nothing but a restart ends them.", "topic"),
	}
	for _, role := range roles() {
		m.connected.WithLabelValues(role).Set(0)
		m.connects.WithLabelValues(role).Add(0)
		m.blockedFor[role] = &stopwatch{}
		if err := r.Register(blockedTime(role, m.blockedFor[role])); err != nil {
			return nil, err
		}
		m.disconnects.WithLabelValues(role).Add(0)
		m.blocked.WithLabelValues(role).Set(0)
	}
	return m, register(r, m.published, m.confirm, m.deliveries, m.lateness, m.settled, m.moved, m.lostLeases, m.repairs, m.dead, m.runs,
		m.runSeconds, m.lastRun, m.found, m.mended, m.connected, m.connects, m.disconnects, m.blocked, m.malformed, m.overran)
}

// preset makes every counter exist from the start: an alert on the increase of one that appears with its first count misses
// that one.
func (m *metrics) preset(namespace string, topics []string, checks []outbox.Check) {
	for _, outcome := range []string{confirmed, nacked, unpublishable, unconfirmed, notSent} {
		m.published.WithLabelValues(outcome)
	}
	m.malformed.WithLabelValues(namespace + ".unrouted")
	for _, topic := range topics {
		m.malformed.WithLabelValues(namespace + ".work." + topic)
		m.overran.WithLabelValues(topic)
		m.lateness.WithLabelValues(topic)
		for _, outcome := range []outbox.Outcome{
			outbox.OutcomeDone, outbox.OutcomeDuplicate, outbox.OutcomeCanceled, outbox.OutcomeStale, outbox.OutcomeEarly,
			outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeBusy, outbox.OutcomeForeign, outbox.OutcomeUnknown,
		} {
			m.deliveries.WithLabelValues(topic, string(outcome))
		}
	}
	for _, reason := range []string{"epoch", "ahead", "overdue", "unrouted"} {
		m.repairs.WithLabelValues(reason)
	}
	for _, reason := range []string{"attempts", "unpublishable", "overdue", "unrouted"} {
		m.dead.WithLabelValues(reason)
	}
	for _, kind := range []outbox.RunKind{outbox.RunPass, outbox.RunAudit, outbox.RunRearm, outbox.RunPurge} {
		m.runSeconds.WithLabelValues(string(kind))
		for _, outcome := range []string{runCompleted, runSkipped, runError} {
			m.runs.WithLabelValues(string(kind), outcome)
		}
	}
	for _, kind := range []outbox.RunKind{outbox.RunPass, outbox.RunAudit} {
		m.lastRun.WithLabelValues(string(kind))
	}
	findings := []string{
		outbox.FoundEpoch, outbox.FoundAhead, outbox.FoundOverdue, outbox.FoundLate, outbox.FoundHopeless, outbox.FoundUnpublished, outbox.FoundDead, outbox.FoundKept, outbox.FoundBroken,
	}
	for _, check := range checks {
		findings = append(findings, check.Kinds...)
	}
	for _, finding := range findings {
		m.found.WithLabelValues(finding)
		m.mended.WithLabelValues(finding)
	}
}

// watch adds what is read when it is asked for.
func (m *metrics) watch(r prometheus.Registerer, w *Worker) error {
	consumers := func(name, help string, pick func(have, want int) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return float64(pick(w.consumer.Consuming()))
		})
	}
	return register(r,
		consumers("duebox_consumers", "Queues that this worker consumes.", func(have, _ int) int { return have }),
		consumers("duebox_consumers_wanted", "Queues that this worker should consume.", func(_, want int) int { return want }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "duebox_broker_epoch", Help: "The life of the broker that was last found."},
			func() float64 { return float64(w.publisher.State().Epoch) }),
		collectors.NewDBStatsCollector(w.pool, "duebox"),
		newLedgerMetrics(w.store, w.topics), newQueueMetrics(w.consumer),
		strategyInfo(w, rabbitmq.Plugin), strategyInfo(w, rabbitmq.Hold), strategyInfo(w, rabbitmq.Tiers),
	)
}

// strategyInfo shows whether a strategy is that of the publisher's connection, or of its last one.
func strategyInfo(w *Worker, s rabbitmq.Strategy) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "duebox_strategy_info", Help: "1 for the delay strategy in use, or last used.", ConstLabels: prometheus.Labels{"strategy": string(s)},
	}, func() float64 {
		if w.publisher.State().Strategy == s {
			return 1
		}
		return 0
	})
}

func register(r prometheus.Registerer, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// ledger is what the store, the relay and the reconciler report to.
func (m *metrics) ledger() outbox.Observer {
	return outbox.Observer{
		Published: func(_ string, confirm time.Duration, err error) {
			m.published.WithLabelValues(publishOutcome(err)).Inc()
			if err == nil {
				m.confirm.Observe(confirm.Seconds())
			}
		},
		Delivered: func(topic string, outcome outbox.Outcome, lateness time.Duration) {
			m.deliveries.WithLabelValues(topic, string(outcome)).Inc()
			if outcome == outbox.OutcomeDone {
				m.lateness.WithLabelValues(topic).Observe(lateness.Seconds())
			}
		},
		Settled: func(published, moved int) {
			m.settled.Add(float64(published))
			m.moved.Add(float64(moved))
		},
		LeaseLost: func(n int) { m.lostLeases.Add(float64(n)) },
		Repaired:  func(reason string, n int) { m.repairs.WithLabelValues(reason).Add(float64(n)) },
		Died:      func(reason string, n int) { m.dead.WithLabelValues(reason).Add(float64(n)) },
		Overran:   func(topic string, n int) { m.overran.WithLabelValues(topic).Add(float64(n)) },
	}
}

func publishOutcome(err error) string {
	switch {
	case err == nil:
		return confirmed
	case errors.Is(err, outbox.ErrNacked):
		return nacked
	case errors.Is(err, outbox.ErrUnpublishable):
		return unpublishable
	case errors.Is(err, outbox.ErrUnconfirmed):
		return unconfirmed
	default:
		return notSent
	}
}

// broker is what the connections report to.
func (m *metrics) broker() rabbitmq.Observer {
	return rabbitmq.Observer{
		Connected: func(role string) {
			m.connected.WithLabelValues(role).Set(1)
			m.connects.WithLabelValues(role).Inc()
		},
		Disconnected: func(role string, _ error) {
			m.connected.WithLabelValues(role).Set(0)
			m.blocked.WithLabelValues(role).Set(0)
			m.blockedFor[role].stop()
			m.disconnects.WithLabelValues(role).Inc()
		},
		Blocked: func(role, _ string) {
			m.blocked.WithLabelValues(role).Set(1)
			m.blockedFor[role].start()
		},
		Unblocked: func(role string) {
			m.blocked.WithLabelValues(role).Set(0)
			m.blockedFor[role].stop()
		},
		Malformed: func(queue string) { m.malformed.WithLabelValues(queue).Inc() },
	}
}

func (m *metrics) run(kind outbox.RunKind, report outbox.Report, err error) {
	outcome := runCompleted
	switch {
	case err != nil:
		outcome = runError
	case report.Skipped:
		outcome = runSkipped
	default:
		m.runSeconds.WithLabelValues(string(kind)).Observe(report.Seconds)
	}
	m.runs.WithLabelValues(string(kind), outcome).Inc()
	if report.DryRun {
		return
	}
	for finding, f := range report.Findings {
		m.found.WithLabelValues(finding).Add(float64(f.Found))
		m.mended.WithLabelValues(finding).Add(float64(f.Mended))
	}
}
