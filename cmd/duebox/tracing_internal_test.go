package main

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// span is what a test wants to know of one.
type span struct{ service, name, trace, id, parent, outcome string }

// receiver takes spans as an OTLP collector does, over HTTP.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	spans []span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var got collector.ExportTraceServiceRequest
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &got) != nil {
			t.Errorf("not a request of OTLP: %s", req.URL)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.take(&got)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(got *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range got.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				next := span{
					service: service, name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()),
					id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
				}
				for _, a := range s.GetAttributes() {
					if a.GetKey() == "duebox.outcome" {
						next.outcome = a.GetValue().GetStringValue()
					}
				}
				r.spans = append(r.spans, next)
			}
		}
	}
}

// The trace of the test's caller, and its span.
const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

// named are the spans of the caller's trace with this name.
func (r *receiver) named(name string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.trace == callersTrace && s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// One trace goes from the caller's request to the effect, through the ledger and the broker, and the logs have its id.
func TestTracing_OneTraceFromTheRequestToTheEffect(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
	env := []string{
		"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", "order.remind"),
		"ORDER_TIMEOUT_NORMAL=1s", "ORDER_REMIND_BEFORE=500ms", "HTTP_ADDR=" + apiAddr, "WORKER_HTTP_ADDR=" + workerAddr,
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL, "OTEL_BSP_SCHEDULE_DELAY=50",
	}
	api, worker := startProcess(t, env, "api"), startProcess(t, env, "worker", "--log-level=debug")
	for _, address := range []string{apiAddr, workerAddr} {
		require.Eventually(t, func() bool { return request(t, http.MethodGet, "http://"+address+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)
	}
	require.Equal(t, http.StatusOK, request(t, http.MethodPut, "http://"+apiAddr+"/v1/products/A", `{"name":"A","stock":1}`, nil))

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+apiAddr+"/v1/orders",
		strings.NewReader(`{"kind":"normal","user":"u","items":[{"sku":"A","quantity":1,"price":5}]}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01")
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	var order struct{ No string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&order))
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)

	for _, topic := range []string{"order.expire", "order.remind"} {
		require.Eventually(t, func() bool {
			return len(r.named("effect "+topic)) > 0 && len(r.named("deliver "+topic)) > 0
		}, patience, 50*time.Millisecond)
		enqueue, publish := r.named("enqueue "+topic), r.named("publish "+topic)
		deliver, effect := r.named("deliver "+topic), r.named("effect "+topic)
		place := r.named("POST /v1/orders")
		require.Len(t, place, 1)
		require.Len(t, enqueue, 1)
		require.Len(t, publish, 1)
		require.Len(t, deliver, 1)
		require.Equal(t, span{service: "duebox-api", name: "POST /v1/orders", trace: callersTrace, id: place[0].id, parent: callersSpan}, place[0])
		require.Equal(t, place[0].id, enqueue[0].parent)
		require.Equal(t, enqueue[0].id, publish[0].parent)
		require.Equal(t, publish[0].id, deliver[0].parent)
		require.Equal(t, deliver[0].id, effect[0].parent)
		require.Equal(t, "duebox-api", enqueue[0].service)
		require.Equal(t, "duebox-worker", effect[0].service)
		require.Equal(t, "done", deliver[0].outcome)
	}
	for _, p := range []*process{api, worker} {
		require.NoError(t, p.stop())
	}
	require.True(t, hasLine(t, api, map[string]any{"msg": "http request", "trace_id": callersTrace, "order": order.No, "route": "/v1/orders"}))
	require.True(t, hasLine(t, worker, map[string]any{"msg": "delivery handled", "trace_id": callersTrace, "key": order.No, "topic": "order.expire"}))
}

// Nothing waits for a collector that is away, and nothing is lost but spans.
func TestTracing_ACollectorThatIsAwayHoldsUpNothing(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	t.Cleanup(stuck.Close)
	t.Cleanup(func() { close(hangs) })
	for _, endpoint := range []string{"http://127.0.0.1:1", stuck.URL} {
		apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
		env := []string{
			"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", "order.remind"),
			"ORDER_TIMEOUT_NORMAL=1s", "ORDER_REMIND_BEFORE=0", "HTTP_ADDR=" + apiAddr, "WORKER_HTTP_ADDR=" + workerAddr,
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BSP_MAX_QUEUE_SIZE=4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2",
		}
		processes := []*process{startProcess(t, env, "api"), startProcess(t, env, "worker")}
		for _, address := range []string{apiAddr, workerAddr} {
			require.Eventually(t, func() bool { return request(t, http.MethodGet, "http://"+address+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)
		}
		require.Equal(t, http.StatusOK, request(t, http.MethodPut, "http://"+apiAddr+"/v1/products/A", `{"name":"A","stock":20}`, nil))
		for range 20 { // many more spans than are kept
			require.Equal(t, http.StatusCreated, request(t, http.MethodPost, "http://"+apiAddr+"/v1/orders",
				`{"kind":"normal","user":"u","items":[{"sku":"A","quantity":1,"price":5}]}`, nil))
		}
		require.Eventually(t, func() bool {
			return metricValue(scrape(t, "http://"+workerAddr)["duebox_orders_total"], "outcome", "closed_by_timeout") == 20
		}, patience, 50*time.Millisecond)
		for _, p := range processes {
			require.NoError(t, p.stop(), endpoint)
		}
	}
}

func TestTracing_SaysWhichProtocolItSpeaks(t *testing.T) {
	t.Parallel()
	code, _, stderr := execute(t, []string{
		"MYSQL_DSN=u@tcp(127.0.0.1:1)/d", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
	}, "api")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `OTEL_EXPORTER_OTLP_PROTOCOL: is "grpc", want http/protobuf`)
}

// stop has the process drain, and returns how it ended.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return <-p.ended
}

// hasLine tells whether a process that has ended logged a line with these values.
func hasLine(t *testing.T, p *process, want map[string]any) bool {
	t.Helper()
	for line := range strings.Lines(p.stderr.String()) {
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &got), line)
		all := true
		for key, value := range want {
			all = all && got[key] == value
		}
		if all {
			return true
		}
	}
	return false
}
