package main

import (
	"crypto/tls"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/certs"
	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

// TestEncryption_OfEveryConnection runs the processes against a MariaDB and a RabbitMQ that speak TLS and want certificates, and
// shows what is said when something does not hold.
func TestEncryption_OfEveryConnection(t *testing.T) {
	t.Parallel()
	ca, other := devtest.NewCA(t), devtest.NewCA(t)
	hour := time.Now().Add(time.Hour)
	certificate, key := ca.Issue("localhost", hour)
	client, clientKey := ca.Issue("duebox", hour)
	db, err := devenv.StartMariaDB(t.Context(), devenv.Config{BufferPool: 64 << 20, Arguments: []string{
		"--ssl-ca=" + ca.File, "--ssl-cert=" + certificate, "--ssl-key=" + key,
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	secured := devtest.Address(t)
	broker := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone, Settings: []string{
		"listeners.ssl.default = " + secured, "ssl_options.cacertfile = " + ca.File, "ssl_options.certfile = " + certificate,
		"ssl_options.keyfile = " + key, "ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = true",
	}})
	dsn, err := mysql.ParseDSN(db.DSN("test"))
	require.NoError(t, err)
	at := func(host string) string {
		moved := dsn.Clone()
		moved.Addr = strings.Replace(dsn.Addr, "127.0.0.1", host, 1)
		return "MYSQL_DSN=" + moved.FormatDSN()
	}
	_, port, _ := strings.Cut(secured, ":")
	amqps := func(host string) string {
		plain := broker.URL()
		return "AMQP_URL=amqps://" + plain[len("amqp://"):strings.LastIndex(plain, "@")+1] + host + ":" + port + "/"
	}
	apiAddr, workerAddr := devtest.Address(t), devtest.Address(t)
	env := func(mysqlHost, brokerHost, mysqlCA, brokerCA string) []string {
		return []string{
			at(mysqlHost), amqps(brokerHost), "MYSQL_TLS_CA_FILE=" + mysqlCA, "MYSQL_TLS_CERT_FILE=" + client, "MYSQL_TLS_KEY_FILE=" + clientKey,
			"AMQP_TLS_CA_FILE=" + brokerCA, "AMQP_TLS_CERT_FILE=" + client, "AMQP_TLS_KEY_FILE=" + clientKey,
			"TLS_CERT_FILE=" + certificate, "TLS_KEY_FILE=" + key, "TLS_CLIENT_CA_FILE=" + ca.File,
			"HTTP_ADDR=" + apiAddr, "WORKER_HTTP_ADDR=" + workerAddr, "MIGRATE_ON_START=false",
		}
	}
	good := env("localhost", "localhost", ca.File, ca.File)
	code, _, stderr := execute(t, good, "migrate")
	require.Zero(t, code, stderr)
	root := devtest.Open(t, db.DSN("test"))
	for _, statement := range []string{
		"CREATE USER secured@'127.0.0.1' IDENTIFIED BY 'x' REQUIRE X509", "GRANT ALL ON test.* TO secured@'127.0.0.1'",
	} {
		_, err := root.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	dsn.User, dsn.Passwd = "secured", "x"
	good = env("localhost", "localhost", ca.File, ca.File)
	startProcess(t, good, "api")
	startProcess(t, good, "worker")

	anyone := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS(t, ca, "", "")}}
	known := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS(t, ca, client, clientKey)}}
	defer anyone.CloseIdleConnections()
	defer known.CloseIdleConnections()
	get := func(c *http.Client, address, path string) int {
		_, port, _ := strings.Cut(address, ":")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+port+path, nil)
		require.NoError(t, err)
		resp, err := c.Do(req)
		if err != nil {
			return 0
		}
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	for process, address := range map[string]string{"api": apiAddr, "worker": workerAddr} {
		require.Eventually(t, func() bool { return get(anyone, address, "/readyz") == http.StatusOK }, patience, 50*time.Millisecond, process)
		require.Equal(t, http.StatusForbidden, get(anyone, address, "/metrics"), process)
		require.Equal(t, http.StatusOK, get(known, address, "/metrics"), process)
		code, _, stderr := execute(t, good, "health", process)
		require.Zero(t, code, stderr)
	}
	require.Equal(t, http.StatusForbidden, get(anyone, apiAddr, "/v1/orders"))
	require.Equal(t, http.StatusOK, get(known, apiAddr, "/v1/orders"))

	for name, c := range map[string]struct {
		env  []string
		says []string
	}{
		"another CA of the database":   {env("localhost", "localhost", other.File, ca.File), []string{"the certificate of localhost does not hold (MYSQL_TLS_CA_FILE)", "unknown authority"}},
		"another host of the database": {env("127.0.0.1", "localhost", ca.File, ca.File), []string{"the certificate of 127.0.0.1 does not hold (MYSQL_TLS_CA_FILE)"}},
		"no file":                      {env("localhost", "localhost", "/absent", ca.File), []string{"MYSQL_TLS_CA_FILE: ", "no such file"}},
	} {
		began := time.Now()
		code, _, stderr := execute(t, c.env, "migrate")
		require.Equal(t, 1, code, name)
		for _, part := range c.says {
			require.Contains(t, stderr, part, name)
		}
		require.Less(t, time.Since(began), 30*time.Second, name)
	}
	for name, c := range map[string]struct {
		env  []string
		says string
	}{
		"another CA of the broker":   {env("localhost", "localhost", ca.File, other.File), "the certificate of localhost does not hold (AMQP_TLS_CA_FILE)"},
		"another host of the broker": {env("localhost", "127.0.0.1", ca.File, ca.File), "the certificate of 127.0.0.1 does not hold (AMQP_TLS_CA_FILE)"},
	} {
		elsewhere := devtest.Address(t)
		p := startProcess(t, append(c.env, "WORKER_HTTP_ADDR="+elsewhere), "worker")
		require.Eventually(t, func() bool { return get(anyone, elsewhere, "/readyz") == http.StatusServiceUnavailable }, patience, 50*time.Millisecond, name)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-p.ended)
		require.Contains(t, p.stderr.String(), c.says, name)
		require.NotContains(t, p.stderr.String(), "secured:x", name)
	}
}

func clientTLS(t *testing.T, ca *devtest.CA, certificate, key string) *tls.Config {
	t.Helper()
	c, err := certs.Client("localhost", certs.File{Setting: "CA", Path: ca.File}, certs.File{Setting: "C", Path: certificate},
		certs.File{Setting: "K", Path: key}, func(error) {})
	require.NoError(t, err)
	return c
}
