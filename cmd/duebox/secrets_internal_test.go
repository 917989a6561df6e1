package main

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// marker stands in every secret of this test and must be seen nowhere.
const marker = "M4rker-d3f9a1c07b5e2846M4rker"

// TestSecrets_AreSeenNowhere gives every setting that holds a secret a marker, right and wrong, from the environment and from files, has
// every command run into what can go wrong, and looks for the marker in all that comes out.
func TestSecrets_AreSeenNowhere(t *testing.T) {
	t.Parallel()
	seen := &strings.Builder{}
	look := func(what string) {
		for form, text := range map[string]string{
			"plain": marker, "base64": base64.StdEncoding.EncodeToString([]byte(marker))[:32], "hex": hex.EncodeToString([]byte(marker)),
		} {
			if at := strings.Index(seen.String(), text); at >= 0 {
				require.Failf(t, "a secret is seen", "%s, %s: %s", what, form, seen.String()[max(0, at-300):at])
			}
		}
	}
	dsn, err := mysql.ParseDSN(devtest.Database(t))
	require.NoError(t, err)
	goodDSN := dsn.FormatDSN()
	dsn.User, dsn.Passwd = "nobody", marker
	wrongDSN := dsn.FormatDSN()
	dsn.Addr = "127.0.0.1:1"
	broker, err := url.Parse(devtest.AMQP(t))
	require.NoError(t, err)
	broker.User = url.UserPassword("nobody", marker)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	tokens := []string{"ADMIN_TOKEN=" + marker, "API_TOKEN=api-" + marker, "JWT_SECRET=" + marker + marker}
	good := slices.Concat(tokens, []string{"MYSQL_DSN=" + goodDSN, "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t, "order.expire", "order.remind")})
	commands := [][]string{
		{"migrate"},
		{"migrate", "status"},
		{"doctor"},
		{"doctor", "--json"},
		{"config"},
		{"config", "--json"},
		{"reconcile"},
		{"restored"},
		{"health"},
		{"api", "--log-level=debug"},
		{"worker", "--log-level=debug"},
	}
	for name, env := range map[string][]string{
		"passwords that are refused": slices.Concat(tokens, []string{"MYSQL_DSN=" + wrongDSN, "AMQP_URL=" + broker.String()}),
		"nobody there":               slices.Concat(tokens, []string{"MYSQL_DSN=" + dsn.FormatDSN(), "AMQP_URL=amqp://a:" + marker + "@127.0.0.1:1/"}),
		"from files":                 {"ADMIN_TOKEN_FILE=" + file(marker), "API_TOKEN_FILE=" + file(marker), "JWT_SECRET_FILE=" + file(marker+marker), "MYSQL_DSN_FILE=" + file(wrongDSN), "AMQP_URL_FILE=" + file(broker.String())},
		"in the wrong place":         {"ADMIN_TOKEN_FILE=" + marker, "API_TOKEN=" + marker + " ", "JWT_SECRET=" + marker, "MYSQL_DSN_FILE=" + wrongDSN, "AMQP_URL=amqp://a:" + marker + "%zz@h"},
		"not even their form":        {"ADMIN_TOKEN=" + marker + "\n", "MYSQL_DSN=mysql://a:" + marker + "@h/d", "AMQP_URL=http://a:" + marker + "@h"},
	} {
		for _, args := range commands {
			_, stdout, stderr := execute(t, env, args...) // none of them can run
			seen.WriteString(stdout + stderr)
			look(name + ": " + strings.Join(args, " "))
		}
	}

	code, _, stderr := execute(t, good, "migrate")
	require.Zero(t, code, stderr)
	apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
	api := startProcess(t, slices.Concat(good, []string{"HTTP_ADDR=" + apiAddr}), "api", "--log-level=debug")
	worker := startProcess(t, slices.Concat(good, []string{"WORKER_HTTP_ADDR=" + workerAddr}), "worker", "--log-level=debug")
	for _, address := range []string{apiAddr, workerAddr} {
		require.Eventually(t, func() bool { return request(t, http.MethodGet, "http://"+address+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)
	}
	ask := func(method, address, path, token, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Header.Write(seen))
		require.NoError(t, resp.Write(seen))
		require.NoError(t, resp.Body.Close())
	}
	for _, token := range []string{marker, marker + "x", marker + ".a.b"} {
		for _, path := range []string{"/metrics", "/v1/admin/overview", "/v1/orders", "/v1/orders/a", "/v1/nothing", "/ui/session", "/openapi", "/healthz"} {
			ask(http.MethodGet, apiAddr, path, token, "")
		}
		ask(http.MethodGet, workerAddr, "/metrics", token, "")
		ask(http.MethodPost, apiAddr, "/ui/session", "", `{"token":"`+token+`","name":"ann"}`)
	}
	for _, p := range []*process{api, worker} {
		require.NoError(t, p.cmd.Process.Kill())
		require.Error(t, <-p.ended, "it was killed")
		require.NotEmpty(t, p.stderr.String())
		seen.WriteString(p.stderr.String())
	}
	look("what runs well")
}
