package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
)

// programVariable makes the test binary be duebox.
const programVariable = "DUEBOX_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "curl" {
		os.Exit(curl(os.Args[1:]))
	}
	if os.Getenv(programVariable) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

const patience = 2 * time.Minute

// duebox is the program with these arguments and nothing but env as its environment.
func duebox(ctx context.Context, env []string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{programVariable + "=1", "GORACE=" + os.Getenv("GORACE")}, env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// execute runs the program to its end.
func execute(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd, out, errs := duebox(t.Context(), env, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		code = exit.ExitCode()
	}
	return code, out.String(), errs.String()
}

func TestDuebox_SaysWhatIsWrongAndExitsWithTwo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := dir + "/orders.csv"
	require.NoError(t, os.WriteFile(bad, []byte("order,placed_at,paid_after_s,items\n1,2017-11-24T08:30:00Z,1,Ax0@1\n"), 0o600))
	for _, c := range []struct {
		args []string
		env  []string
		says []string
	}{
		{[]string{"serve"}, nil, []string{`unknown command "serve"`}},
		{[]string{"api", "--port=1"}, nil, []string{"unknown flag: --port"}},
		{[]string{"api", "now"}, nil, []string{`unknown command "now"`}},
		{[]string{"api"}, nil, []string{"MYSQL_DSN: is required"}},
		{[]string{"worker"}, []string{"GRACE=soon", "NAMESPACE=a b"}, []string{"MYSQL_DSN: is required", "AMQP_URL: is required", "GRACE: is \"soon\"", "NAMESPACE"}},
		{[]string{"worker", "--log-level=loud"}, []string{"MYSQL_DSN=u@tcp(x)/d", "AMQP_URL=amqp://x"}, []string{`--log-level: is "loud"`}},
		{[]string{"worker"}, []string{"MYSQL_DSN=u@tcp(127.0.0.1:1)/d?timeout=abc", "AMQP_URL=amqp://x", "DELAY_STRATEGY=redis", "RECONCILE_SCHEDULE=99 * * * *"}, []string{
			"MYSQL_DSN: want parameters", "DELAY_STRATEGY: is \"redis\", want auto, plugin, hold or tiers", "RECONCILE_SCHEDULE: is \"99 * * * *\"",
		}},
		{[]string{"api"}, []string{"MYSQL_DSN=u@tcp(127.0.0.1:1)/d?loc=Nowhere"}, []string{"MYSQL_DSN: unknown time zone Nowhere"}},
		{[]string{"health"}, []string{"HTTP_ADDR=8080"}, []string{"HTTP_ADDR: want host:port"}},
		{[]string{"migrate"}, nil, []string{"MYSQL_DSN: is required"}},
		{[]string{"restored"}, nil, []string{"MYSQL_DSN: is required"}},
		{[]string{"reconcile"}, nil, []string{"MYSQL_DSN: is required", "AMQP_URL: is required"}},
		{[]string{"outbox", "stats"}, nil, []string{"MYSQL_DSN: is required"}},
		{[]string{"health", "database"}, nil, []string{`invalid argument "database"`}},
		{[]string{"demo", "--orders=0"}, nil, []string{"--orders: is 0"}},
		{[]string{"demo", "--orders=many"}, nil, []string{`invalid argument "many" for "--orders"`}},
		{[]string{"demo", "--timeout=1ms"}, nil, []string{"timeout: 1ms is not in"}},
		{[]string{"demo", "--rate=-1"}, nil, []string{"rate: -1 is not in"}},
		{[]string{"demo", "--rate=NaN"}, nil, []string{"rate: NaN is not in"}},
		{[]string{"demo", "--orders-file=" + dir + "/absent.csv"}, nil, []string{"absent.csv: no such file"}},
		{[]string{"demo", "--orders-file=" + dir}, nil, []string{"is a directory"}},
		{[]string{"demo", "--orders-file=" + bad}, nil, []string{"line 2, column 26 (items)"}},
	} {
		code, stdout, stderr := execute(t, c.env, c.args...)
		require.Equal(t, 2, code, "%v: %s", c.args, stderr)
		require.Empty(t, stdout)
		for _, part := range c.says {
			require.Contains(t, stderr, part, c.args)
		}
		require.True(t, strings.HasPrefix(stderr, "duebox: "), stderr)
	}
}

func TestDuebox_NeverShowsAPassword(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"api"}, {"worker"}, {"migrate"}, {"reconcile"}, {"outbox", "list"}, {"restored"}} {
		code, stdout, stderr := execute(t, []string{
			"MYSQL_DSN=user:pa55word@tcp(127.0.0.1:1)/d", "AMQP_URL=amqp://user:pa55word@127.0.0.1:1/",
		}, args...)
		require.NotZero(t, code)
		require.Contains(t, stderr, "connect to the database at 127.0.0.1:1")
		require.NotContains(t, stdout+stderr, "pa55word")
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	code, stdout, _ := execute(t, nil, "version")
	require.Zero(t, code)
	require.Contains(t, stdout, "duebox ")
	code, flagged, _ := execute(t, nil, "--version")
	require.Zero(t, code)
	require.Equal(t, stdout, flagged)
	code, stdout, _ = execute(t, nil)
	require.Zero(t, code)
	for _, command := range []string{"api", "worker", "migrate", "reconcile", "outbox", "restored", "demo", "health", "version"} {
		require.Contains(t, stdout, "\n  "+command+" ")
	}
}

// TestDuebox_RunsAnOrderThroughItsProcesses starts what an installation runs, one process each.
func TestDuebox_RunsAnOrderThroughItsProcesses(t *testing.T) {
	t.Parallel()
	env := []string{
		"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", "order.remind"),
		"ORDER_TIMEOUT_NORMAL=2s", "ORDER_REMIND_BEFORE=1s", "ADMIN_TOKEN=admin",
	}
	apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
	apiEnv, workerEnv := slices.Concat(env, []string{"HTTP_ADDR=" + apiAddr}), slices.Concat(env, []string{"WORKER_HTTP_ADDR=" + workerAddr})

	code, _, stderr := execute(t, apiEnv, "health", "api")
	require.Equal(t, 1, code, stderr)
	// Both migrate an empty database at the same time.
	api := startProcess(t, apiEnv, "api")
	worker := startProcess(t, workerEnv, "worker")
	for _, address := range []string{apiAddr, workerAddr} {
		require.Eventually(t, func() bool { return request(t, http.MethodGet, "http://"+address+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)
	}
	for _, args := range [][]string{{"health"}, {"health", "api"}} {
		code, _, stderr := execute(t, append(apiEnv, "GRACE=soon", "API_TOKEN_FILE=/absent"), args...)
		require.Zero(t, code, stderr)
	}
	code, _, stderr = execute(t, workerEnv, "health", "worker")
	require.Zero(t, code, stderr)

	require.Equal(t, http.StatusOK, request(t, http.MethodPut, "http://"+apiAddr+"/v1/products/A", `{"name":"A","stock":1}`, nil))
	var order struct {
		No, Status string
		RemindedAt time.Time `json:"reminded_at"`
		DueAt      time.Time `json:"due_at"`
	}
	require.Equal(t, http.StatusCreated, request(t, http.MethodPost, "http://"+apiAddr+"/v1/orders",
		`{"kind":"normal","user":"u","items":[{"sku":"A","quantity":1,"price":5}]}`, &order))
	require.Eventually(t, func() bool {
		return request(t, http.MethodGet, "http://"+apiAddr+"/v1/orders/"+order.No, "", &order) == http.StatusOK && order.Status == "closed"
	}, patience, 50*time.Millisecond)
	require.WithinRange(t, order.RemindedAt, order.DueAt.Add(-time.Second), order.DueAt)
	require.Equal(t, http.StatusUnauthorized, request(t, http.MethodGet, "http://"+workerAddr+"/metrics", "", nil))

	for _, c := range []*process{api, worker} {
		require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-c.ended, "%s", c.stderr.String())
		require.Equal(t, 0, c.cmd.ProcessState.ExitCode())
		for line := range strings.Lines(c.stderr.String()) {
			require.True(t, json.Valid([]byte(line)), line)
		}
	}
}

func TestReconcile_ExitCodes(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	env := []string{"MYSQL_DSN=" + dsn, "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t)}
	code, _, stderr := execute(t, env, "reconcile")
	require.Equal(t, 2, code, "there are no tables yet: %s", stderr)
	require.Contains(t, stderr, "run duebox migrate")

	code, stdout, stderr := execute(t, env, "migrate")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "schema is up to date\n")
	code, stdout, stderr = execute(t, env, "reconcile", "--check")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "pass 1: found 0, purged 0, in ")

	db := devtest.Open(t, dsn)
	lose := func() {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (shard, topic, state, due_at, available_at, content_type, payload, created_at)
			VALUES (0, 'nobody', 'published', '2026-01-01', '2026-01-01', 'x', '', '2026-01-01')`)
		require.NoError(t, err)
	}
	lose()
	code, stdout, stderr = execute(t, env, "reconcile", "--json")
	require.Zero(t, code, stderr)
	var report outbox.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, outbox.Finding{Found: 1, Mended: 1, IDs: []string{"1"}}, report.Of(outbox.FoundOverdue))
	lose()
	code, stdout, stderr = execute(t, env, "reconcile", "--check", "--dry-run")
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stdout, "  overdue: found 1, mended 0: 2\n")
	code, _, stderr = execute(t, env, "reconcile", "--check")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "faults found: 1")

	// What is expired is deleted after the pass, and told of in one report with it.
	expire := func() {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (shard, topic, state, due_at, available_at, content_type, payload, created_at)
			VALUES (0, 'nobody', 'done', '2026-01-01', '2026-01-01', 'x', '', '2026-01-01'), (1, 'nobody', 'canceled', '2026-01-01', '2026-01-01', 'x', '', '2026-01-01')`)
		require.NoError(t, err)
	}
	expire()
	code, stdout, stderr = execute(t, env, "reconcile", "--dry-run")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, ", to be purged 2, in ")
	code, stdout, stderr = execute(t, env, "reconcile", "--audit", "--json")
	require.Zero(t, code, stderr)
	report = outbox.Report{}
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.True(t, report.Audit)
	require.Equal(t, 2, report.Purged)
	code, stdout, stderr = execute(t, env, "reconcile")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, ", purged 0, in ")
	expire()
	purging, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = purging.Close() }()
	_, err = purging.ExecContext(t.Context(), "DO GET_LOCK(CONCAT('duebox.purge.', LEFT(SHA2(DATABASE(), 256), 32)), 0)")
	require.NoError(t, err)
	code, stdout, stderr = execute(t, env, "reconcile", "--wait=500ms")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, ", purged 0, in ")
	require.Contains(t, stdout, "  left to another process that is at it: the purge\n")
	_, err = purging.ExecContext(t.Context(), "DO RELEASE_LOCK(CONCAT('duebox.purge.', LEFT(SHA2(DATABASE(), 256), 32)))")
	require.NoError(t, err)
	for range 5 {
		expire()
	}
	for _, refer := range []string{
		"CREATE TABLE evidence (message BIGINT, FOREIGN KEY (message) REFERENCES outbox_messages (id))",
		"INSERT INTO evidence SELECT id FROM outbox_messages WHERE state = 'done'",
	} {
		_, err = db.ExecContext(t.Context(), refer)
		require.NoError(t, err)
	}
	code, stdout, stderr = execute(t, env, "reconcile")
	require.Equal(t, 2, code)
	require.Contains(t, stdout, ", incomplete: ")
	require.Contains(t, stderr, "purge done messages: ")

	// Somebody else's pass does not end.
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), "DO GET_LOCK(CONCAT('duebox.pass.', LEFT(SHA2(DATABASE(), 256), 32)), 0)")
	require.NoError(t, err)
	code, _, stderr = execute(t, env, "reconcile", "--wait=500ms")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "another pass was under way")
}

func TestDuebox_WithoutTablesIsNotReadyAndSaysWhy(t *testing.T) {
	t.Parallel()
	env := []string{
		"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", "order.remind"), "MIGRATE_ON_START=false",
	}
	apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
	env = append(env, "HTTP_ADDR="+apiAddr, "WORKER_HTTP_ADDR="+workerAddr)
	processes := []*process{startProcess(t, env, "api"), startProcess(t, env, "worker")}
	for _, address := range []string{apiAddr, workerAddr} {
		require.Eventually(t, func() bool {
			return strings.Contains(body(t, "http://"+address+"/readyz"), "run duebox migrate")
		}, patience, 50*time.Millisecond)
	}
	code, _, stderr := execute(t, env, "migrate")
	require.Zero(t, code, stderr)
	for _, address := range []string{apiAddr, workerAddr} {
		require.Eventually(t, func() bool { return request(t, http.MethodGet, "http://"+address+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)
	}
	for _, p := range processes {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-p.ended, "%s", p.stderr.String())
		require.Contains(t, p.stderr.String(), `"level":"ERROR","msg":"the database lacks tables: run duebox migrate"`)
	}
}

func TestDuebox_NamesTheSettingWhoseAddressIsTaken(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()
	env := []string{"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=amqp://127.0.0.1:1/", "HTTP_ADDR=" + taken, "WORKER_HTTP_ADDR=" + taken}
	for command, variable := range map[string]string{"api": "HTTP_ADDR", "worker": "WORKER_HTTP_ADDR"} {
		code, _, stderr := execute(t, env, command)
		require.Equal(t, 1, code, stderr)
		require.Contains(t, stderr, "duebox: "+variable+": listen tcp "+taken)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", ":8080": "127.0.0.1:8080",
		"[::]:8080": "[::1]:8080", "db.local:1": "db.local:1",
	} {
		require.Equal(t, want, reachable(listen))
	}
}

// process is a running duebox; ended gives how it ended.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	ended  chan error
}

func startProcess(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{ended: make(chan error, 1)}
	p.cmd, _, p.stderr = duebox(context.WithoutCancel(t.Context()), env, args...)
	require.NoError(t, p.cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-done
	})
	return p
}

// body returns the answer to a GET, "" if there was none.
func body(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(content)
}

// request returns the status, 0 if there was no answer.
func request(t *testing.T, method, url, body string, into any) int {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if into != nil && resp.StatusCode < 300 {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(into))
	}
	return resp.StatusCode
}

func TestConnections_EveryEffectHasOne(t *testing.T) {
	t.Parallel()
	require.Equal(t, 50, connections(8))
	require.Equal(t, 1044, connections(1024))
}

func TestRestored_GivesTheLedgerAnotherID(t *testing.T) {
	t.Parallel()
	env := []string{"MYSQL_DSN=" + devtest.Database(t)}
	code, _, stderr := execute(t, env, "restored")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "run duebox migrate")
	code, _, stderr = execute(t, env, "migrate")
	require.Zero(t, code, stderr)
	code, first, stderr := execute(t, env, "restored")
	require.Zero(t, code, stderr)
	require.Contains(t, first, "the ledger's id is ")
	code, second, stderr := execute(t, env, "restored")
	require.Zero(t, code, stderr)
	require.NotEqual(t, first, second)
}
