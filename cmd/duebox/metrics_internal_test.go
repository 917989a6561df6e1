package main

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// testdata/metrics.golden is what dashboards and alerts are checked against (internal/signals).
const metricsGolden = "testdata/metrics.golden"

var update = flag.Bool("update", false, "write testdata anew")

// TestMetrics_AreThoseThatDashboardsAndAlertsMayUse holds what api and worker show, once an order has gone through them, against the golden
// file: names, types, labels, and the values of labels that have a few.
func TestMetrics_AreThoseThatDashboardsAndAlertsMayUse(t *testing.T) {
	t.Parallel()
	apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
	env := []string{
		"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", "order.remind"),
		"ORDER_TIMEOUT_NORMAL=1s", "ORDER_REMIND_BEFORE=500ms", "HTTP_ADDR=" + apiAddr, "WORKER_HTTP_ADDR=" + workerAddr,
	}
	processes := map[string]string{"api": "http://" + apiAddr, "worker": "http://" + workerAddr}
	for name, url := range processes {
		startProcess(t, env, name)
		require.Eventually(t, func() bool { return request(t, http.MethodGet, url+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)
	}
	require.Equal(t, http.StatusOK, request(t, http.MethodPut, processes["api"]+"/v1/products/A", `{"name":"A","stock":2}`, nil))
	require.Equal(t, http.StatusCreated, request(t, http.MethodPost, processes["api"]+"/v1/orders",
		`{"kind":"normal","user":"u","items":[{"sku":"A","quantity":1,"price":5}]}`, nil))
	require.Eventually(t, func() bool {
		return metricValue(scrape(t, processes["worker"])["duebox_orders_total"], "outcome", "closed_by_timeout") == 1
	}, patience, 50*time.Millisecond)

	api, worker := scrape(t, processes["api"]), scrape(t, processes["worker"])
	require.InDelta(t, 1, metricValue(api["duebox_orders_total"], "outcome", "placed"), 0)
	require.InDelta(t, 1, metricValue(worker["duebox_orders_total"], "outcome", "reminded"), 0)
	require.InDelta(t, 1, metricValue(worker["duebox_ledger_up"], "", ""), 0)
	require.InDelta(t, 0, metricValue(worker["duebox_clock_offset_seconds"], "", ""), 10)
	for _, role := range []string{"publisher", "consumer"} {
		require.InDelta(t, 1, metricValue(worker["duebox_broker_connects_total"], "role", role), 0)
	}
	require.InDelta(t, 1, metricValue(worker["duebox_queue_consumers"], "topic", "order.expire"), 0)

	got := described("api", api) + described("worker", worker)
	if *update {
		require.NoError(t, os.WriteFile(metricsGolden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(metricsGolden)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")), "go test ./cmd/duebox -run Metrics -update")
}

func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body(t, url+"/metrics")))
	require.NoError(t, err)
	return families
}

// metricValue is that of the metric with this label, or of the only one; -1 if there is none.
func metricValue(f *dto.MetricFamily, label, value string) float64 {
	for _, m := range f.GetMetric() {
		has := label == ""
		for _, l := range m.GetLabel() {
			has = has || l.GetName() == label && l.GetValue() == value
		}
		if has {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return -1
}

// described is a line for each metric: process, name, type, and its labels. Of labels with few values those are told.
func described(process string, families map[string]*dto.MetricFamily) string {
	few := []string{"outcome", "reason", "kind", "role", "state", "strategy", "finding"}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(families)) {
		values := map[string]map[string]bool{}
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if values[l.GetName()] == nil {
					values[l.GetName()] = map[string]bool{}
				}
				values[l.GetName()][l.GetValue()] = true
			}
		}
		fmt.Fprintf(&lines, "%s %s %s", process, name, strings.ToLower(families[name].GetType().String()))
		for _, label := range slices.Sorted(maps.Keys(values)) {
			lines.WriteString(" " + label)
			if slices.Contains(few, label) {
				lines.WriteString("=" + strings.Join(slices.Sorted(maps.Keys(values[label])), "|"))
			}
		}
		lines.WriteString("\n")
	}
	return lines.String()
}
