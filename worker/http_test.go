package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

func get(t *testing.T, h http.Handler, path, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func TestReadyz_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://guest:guest@127.0.0.1:1/", "nobody")
	w, _ := p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, func() bool {
		return w.Readiness(t.Context()).Publisher.Reason != "not started" && w.Readiness(t.Context()).Publisher.Reason != "connecting"
	}, patience, tick)

	rec := get(t, w.Routes(), "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
	var body map[string]any
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &body))
	require.Equal(t, "waiting", body["status"])
	require.Equal(t, "ok", body["database"])
	require.Equal(t, map[string]any{"have": 0.0, "want": 2.0}, body["consumers"])
	publisher, ok := body["publisher"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, false, publisher["connected"])
	require.Equal(t, "auto", publisher["strategy"], "what was asked for, until the broker has answered")
	require.NotContains(t, publisher["reason"], "guest")
	require.Equal(t, http.StatusOK, get(t, w.Routes(), "/healthz", "").Code, "it lives, and waits")
}

func TestReadyz_NeedsTheDatabase(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, stop := p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	require.Eventually(t, ready(t, w), patience, tick)
	rec := get(t, w.Routes(), "/readyz", "")
	require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())

	require.NoError(t, stop())
	require.NoError(t, p.pool.Close())
	r := w.Readiness(t.Context())
	require.Equal(t, "away", r.Database)
	require.Equal(t, "draining", r.Status)
}

func TestReadyz_SaysThatTheTablesAreMissing(t *testing.T) {
	t.Parallel()
	db, err := database.Open(t.Context(), devtest.Database(t))
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	w, err := worker.New(db, "amqp://127.0.0.1:1/", map[string]worker.Effect{topic: written}, worker.Config{})
	require.NoError(t, err)
	rec := get(t, w.Routes(), "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Contains(t, rec.Body.String(), `"database":"no tables: run duebox migrate"`)
}

func TestMetrics_CountFromZero(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://127.0.0.1:1/", "ns")
	w, err := worker.New(p.db, p.amqpURL, map[string]worker.Effect{topic: written, "other": written}, worker.Config{
		Namespace: "ns", Checks: []outbox.Check{{Name: "own", Kinds: []string{"thing"}, Run: func(context.Context, *outbox.Pass) error { return nil }}},
	})
	require.NoError(t, err)
	shown := get(t, w.Routes(), "/metrics", "").Body.String()
	var lines []string
	for _, outcome := range []string{"confirmed", "nacked", "unconfirmed", "unpublishable", "not_sent"} {
		lines = append(lines, `duebox_published_total{outcome="`+outcome+`"} 0`)
	}
	for _, name := range []string{topic, "other"} {
		for _, outcome := range []string{"done", "duplicate", "canceled", "stale", "early", "retry", "dead", "foreign", "unknown"} {
			lines = append(lines, `duebox_deliveries_total{outcome="`+outcome+`",topic="`+name+`"} 0`)
		}
		lines = append(lines, `duebox_malformed_total{queue="ns.work.`+name+`"} 0`, `duebox_overran_effects{topic="`+name+`"} 0`,
			`duebox_lateness_seconds_count{topic="`+name+`"} 0`)
	}
	for _, kind := range []string{"pass", "audit", "rearm"} {
		for _, outcome := range []string{"completed", "skipped", "error"} {
			lines = append(lines, `duebox_reconcile_runs_total{kind="`+kind+`",outcome="`+outcome+`"} 0`)
		}
	}
	for _, kind := range []string{"pass", "audit"} {
		lines = append(lines, `duebox_reconcile_last_success_timestamp_seconds{kind="`+kind+`"} 0`)
	}
	for _, finding := range []string{"epoch", "overdue", "late", "hopeless", "dead", "kept", "broken", "ahead", "thing"} {
		lines = append(lines, `duebox_reconcile_found_total{finding="`+finding+`"} 0`, `duebox_reconcile_mended_total{finding="`+finding+`"} 0`)
	}
	lines = append(lines, `duebox_malformed_total{queue="ns.unrouted"} 0`,
		`duebox_repairs_total{reason="epoch"} 0`, `duebox_repairs_total{reason="overdue"} 0`, `duebox_repairs_total{reason="unrouted"} 0`)
	for _, reason := range []string{"attempts", "unpublishable", "overdue", "unrouted"} {
		lines = append(lines, `duebox_dead_total{reason="`+reason+`"} 0`)
	}
	for _, line := range lines {
		require.True(t, containsLine(shown, line), "%s is not in\n%s", line, shown)
	}
}

func TestMetrics_TellWhatTheWorkerDid(t *testing.T) {
	t.Parallel()
	p := newPlace(t, topic)
	w, _ := p.start(t, worker.Config{AdminToken: "secret"}, map[string]worker.Effect{topic: written})
	p.enqueue(t, repeat(5)...)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == 5 }, patience, tick)

	for _, wrong := range []string{"", "Bearer", "Bearer wrong", "Basic secret"} {
		require.Equal(t, http.StatusUnauthorized, get(t, w.Routes(), "/metrics", wrong).Code, wrong)
	}
	require.Eventually(t, func() bool {
		rec := get(t, w.Routes(), "/metrics", "Bearer secret")
		require.Equal(t, http.StatusOK, rec.Code)
		for _, line := range []string{
			`duebox_published_total{outcome="confirmed"} 5`,
			`duebox_deliveries_total{outcome="done",topic="test"} 5`,
			`duebox_lateness_seconds_count{topic="test"} 5`,
			`duebox_confirm_seconds_count 5`,
			`duebox_broker_connected{role="publisher"} 1`,
			`duebox_broker_connected{role="consumer"} 1`,
			`duebox_broker_disconnects_total{role="publisher"} 0`,
			`duebox_broker_connects_total{role="publisher"} 1`,
			`duebox_broker_blocked_seconds_total{role="publisher"} 0`,
			`duebox_queue_consumers{topic="test"} 1`,
			`duebox_broker_epoch 1`,
			`duebox_strategy_info{strategy="plugin"} 1`,
			`duebox_strategy_info{strategy="hold"} 0`,
			`duebox_strategy_info{strategy="tiers"} 0`,
			`duebox_consumers 2`,
			`duebox_consumers_wanted 2`,
			`duebox_lost_leases_total 0`,
			`duebox_reconcile_runs_total{kind="rearm",outcome="completed"} 1`,
			`go_sql_open_connections{db_name="duebox"}`,
		} {
			if !containsLine(rec.Body.String(), line) {
				t.Logf("not there yet: %s", line)
				return false
			}
		}
		return true
	}, patience, tick)
}

// Without a token the metrics are for this machine, and not for a page whose name resolves to it.
func TestMetrics_WithoutATokenAreForThisMachine(t *testing.T) {
	t.Parallel()
	p := newPlaceOn(t, "amqp://guest:guest@127.0.0.1:1/", "nobody")
	w, _ := p.start(t, worker.Config{}, map[string]worker.Effect{topic: written})
	for host, code := range map[string]int{"127.0.0.1:9090": http.StatusOK, "rebound.example.org:9090": http.StatusForbidden} {
		for path, code := range map[string]int{"/metrics": code, "/healthz": http.StatusOK} {
			rec := httptest.NewRecorder()
			w.Routes().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+path, nil))
			require.Equal(t, code, rec.Code, "%s%s: %s", host, path, rec.Body)
		}
	}
}
