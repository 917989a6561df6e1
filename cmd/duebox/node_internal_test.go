package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

const nodeExample = "../../examples/node-consumer"

// gateway is the API as a client in another language sees it.
type gateway struct{ base, token string }

type message struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Generation int64     `json:"generation"`
	DueAt      time.Time `json:"due_at"`
}

func (g gateway) call(t *testing.T, method, path, body string) (status int, m message) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.base+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+g.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 300 && resp.StatusCode != http.StatusNoContent {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&m))
	}
	return resp.StatusCode, m
}

// startNode installs the example into a folder of its own and starts it. Stop returns what it has written, once it has drained.
func startNode(t *testing.T, env ...string) (stop func() string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(nodeExample)))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "node_modules")))
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", filepath.Join(dir, ".cache"))
	install.Dir = dir
	said, err := install.CombinedOutput()
	require.NoError(t, err, "npm ci: %s; is npm installed? run scripts/setup.sh", said)

	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "node", "consumer.mjs")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if cmd.Process.Kill() == nil {
			<-ended //nolint:errcheck // killed
		}
		if t.Failed() {
			t.Logf("node said:\n%s", stderr.String())
		}
	})
	return func() string {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		err := <-ended
		ended <- err
		require.NoError(t, err)
		return stdout.String()
	}
}

// A consumer in another language runs what is put over HTTP: each message once, none early, none that was withdrawn.
func TestNodeConsumer_RunsWhatIsDueAndNotWithdrawn(t *testing.T) {
	t.Parallel()
	const topic, messages = "cart.remind", 20
	env := []string{
		"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", topic),
		"API_TOKEN=token", "ADMIN_TOKEN=admin",
	}
	address := devtest.Address(t)
	g := gateway{"http://" + address, "token"}
	stop := startNode(t, env[1], env[2], env[3], "API_URL="+g.base, "TOPIC="+topic) // before there is anything: it has to wait for the rest
	startProcess(t, append(env, "HTTP_ADDR="+address), "api")
	startProcess(t, append(env, "WORKER_HTTP_ADDR="+devtest.Address(t)), "worker")
	require.Eventually(t, func() bool { return request(t, http.MethodGet, g.base+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)

	key := func(i int) string { return fmt.Sprintf("cart/%d ü", i) }
	path := func(i int) string { return "/v1/messages/" + topic + "/" + url.PathEscape(key(i)) }
	live := map[string]message{}
	for i := range messages {
		delay := time.Duration(i%5) * 700 * time.Millisecond
		if i < 5 {
			delay = time.Hour // until they are withdrawn or moved
		}
		status, m := g.call(t, http.MethodPut, path(i), `{"payload":{"cart":`+strconv.Itoa(i)+`},"delay":"`+delay.String()+`"}`)
		require.Equal(t, http.StatusCreated, status)
		live[key(i)] = m
	}
	copies := []message{} // that the broker still has
	for i := range 3 {
		status, _ := g.call(t, http.MethodDelete, path(i), "")
		require.Equal(t, http.StatusNoContent, status)
		copies = append(copies, live[key(i)])
		delete(live, key(i))
	}
	for i, body := range map[int]string{3: `{"delay":"1500ms"}`, 4: `{"due_at":"` + time.Now().Add(2*time.Second).UTC().Format(time.RFC3339Nano) + `"}`} {
		status, m := g.call(t, http.MethodPatch, path(i), body)
		require.Equal(t, http.StatusOK, status)
		copies = append(copies, live[key(i)])
		live[key(i)] = m
	}
	// One comes too early and only then, as from a broker whose clock is ahead.
	status, early := g.call(t, http.MethodPut, path(messages), `{"payload":{"cart":`+strconv.Itoa(messages)+`},"delay":"1h"}`)
	require.Equal(t, http.StatusCreated, status)
	db := devtest.Open(t, strings.TrimPrefix(env[0], "MYSQL_DSN="))
	_, err := db.ExecContext(t.Context(), "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 2500000 MICROSECOND WHERE id = ?", early.ID)
	require.NoError(t, err)
	_, early = g.call(t, http.MethodGet, path(messages), "")
	live[key(messages)] = early
	isDone := func(key string) bool {
		_, now := g.call(t, http.MethodGet, "/v1/messages/"+topic+"/"+url.PathEscape(key)+"?id="+live[key].ID, "")
		return now.State == "done"
	}
	require.Eventually(t, func() bool { return isDone(key(5)) }, patience, 50*time.Millisecond, "it consumes")
	deliver(t, db, strings.TrimPrefix(env[2], "NAMESPACE="), topic, append(copies, early))

	for key := range live {
		require.Eventually(t, func() bool { return isDone(key) }, patience, 50*time.Millisecond, key)
	}

	seen := map[string]bool{}
	for line := range strings.Lines(stop()) {
		var effect struct {
			ID, Generation, Key, Payload, ContentType string
			Due, At                                   time.Time
		}
		require.NoError(t, json.Unmarshal([]byte(line), &effect), line)
		m, known := live[effect.Key]
		require.True(t, known, "withdrawn, or nobody's: %s", line)
		require.False(t, seen[effect.Key], "twice: %s", line)
		seen[effect.Key] = true
		require.Equal(t, m.ID, effect.ID)
		require.Equal(t, strconv.FormatInt(m.Generation, 10), effect.Generation)
		require.Equal(t, "application/json", effect.ContentType)
		require.JSONEq(t, `{"cart":`+strings.Trim(effect.Key, "cart/ ü")+`}`, effect.Payload)
		require.False(t, effect.At.Add(time.Millisecond).Before(m.DueAt), "early: %s, due %s", line, m.DueAt) // it writes whole milliseconds
	}
	require.Len(t, seen, messages-3+1)
}

// deliver puts copies of messages into the work queue.
func deliver(t *testing.T, db *sql.DB, namespace, topic string, copies []message) {
	t.Helper()
	ch, err := devtest.Dial(t, devtest.AMQP(t)).Channel()
	require.NoError(t, err)
	require.NoError(t, ch.Confirm(false))
	for _, m := range copies {
		id, err := strconv.ParseInt(m.ID, 10, 64)
		require.NoError(t, err)
		var store, key, payload string
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT store_id, message_key, payload FROM outbox_messages AS m
			JOIN outbox_meta AS o ON o.id = 1 WHERE m.id = ?`, id).Scan(&store, &key, &payload))
		confirm, err := ch.PublishWithDeferredConfirm(namespace+".deliver", topic, false, false, amqp.Publishing{
			ContentType: "application/json", Body: []byte(payload),
			Headers: amqp.Table{
				"duebox-id": id, "duebox-store": store, "duebox-key": key, "duebox-generation": m.Generation, "duebox-attempt": int64(0),
				"duebox-due": m.DueAt.UnixMicro(),
			},
		})
		require.NoError(t, err)
		require.True(t, confirm.Wait())
	}
}

// The lock file must not say where packages are fetched from.
func TestNodeConsumer_LockFileNamesNoHost(t *testing.T) {
	t.Parallel()
	lock, err := os.ReadFile(nodeExample + "/package-lock.json")
	require.NoError(t, err)
	require.NotContains(t, string(lock), "://")
	require.Contains(t, string(lock), "sha512-")
}
