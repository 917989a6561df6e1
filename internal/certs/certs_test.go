package certs_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/certs"
	"github.com/duebox/duebox/internal/devenv/devtest"
)

const soon = time.Hour

func file(setting, path string) certs.File { return certs.File{Setting: setting, Path: path} }

// server answers each connection with whether it knows the client, and the name on its own certificate.
func server(t *testing.T, c *tls.Config) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if secured, ok := conn.(*tls.Conn); ok && secured.HandshakeContext(t.Context()) == nil {
				state := secured.ConnectionState()
				text := "stranger"
				if certs.IsKnown(&state) {
					text = "known"
				}
				_, _ = io.WriteString(conn, text)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// ask connects and returns what the server says.
func ask(t *testing.T, address string, c *tls.Config) (said string, err error) {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, c)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	text, err := io.ReadAll(conn)
	return string(text), err
}

func silent(error) {}

func serverConfig(t *testing.T, ca *devtest.CA, host string, until time.Time, clientCA string) *tls.Config {
	t.Helper()
	certificate, key := ca.Issue(host, until)
	c, err := certs.Server(file("C", certificate), file("K", key), file("CLIENT_CA", clientCA), silent)
	require.NoError(t, err)
	return c
}

func TestClient_BelievesNobodyElse(t *testing.T) {
	t.Parallel()
	ca, other := devtest.NewCA(t), devtest.NewCA(t)
	good := server(t, serverConfig(t, ca, "127.0.0.1", time.Now().Add(soon), ""))
	named := server(t, serverConfig(t, ca, "mq.example", time.Now().Add(soon), ""))
	client := func(host, ca string) *tls.Config {
		c, err := certs.Client(host, file("AMQP_TLS_CA_FILE", ca), certs.File{}, certs.File{}, silent)
		require.NoError(t, err)
		return c.Clone() // as libraries do
	}
	said, err := ask(t, good, client("127.0.0.1", ca.File))
	require.NoError(t, err)
	require.Equal(t, "stranger", said)
	_, err = ask(t, named, client("mq.example", ca.File))
	require.NoError(t, err)

	expiring, key := ca.Issue("127.0.0.1", time.Now().Add(2*time.Second))
	pair, err := tls.LoadX509KeyPair(expiring, key)
	require.NoError(t, err)
	over := server(t, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	require.Eventually(t, func() bool {
		_, err = ask(t, over, client("127.0.0.1", ca.File))
		return err != nil
	}, time.Minute, 50*time.Millisecond)
	require.ErrorContains(t, err, "the certificate of 127.0.0.1 does not hold (AMQP_TLS_CA_FILE): x509: certificate has expired")

	for problem, c := range map[string]struct {
		address string
		config  *tls.Config
	}{
		"signed by unknown authority":                    {good, client("127.0.0.1", other.File)},
		"x509: certificate is valid for mq.example, not": {named, client("other.example", ca.File)},
		"doesn't contain any IP SANs":                    {named, client("127.0.0.1", ca.File)},
		"valid for 127.0.0.1, not 127.0.0.2":             {good, client("127.0.0.2", ca.File)},
	} {
		_, err := ask(t, c.address, c.config)
		require.ErrorContains(t, err, problem)
		require.ErrorContains(t, err, "AMQP_TLS_CA_FILE")
	}
	plain, err := certs.Client("127.0.0.1", certs.File{}, file("C", expiring), file("K", key), silent)
	if err == nil { // it may be over by now
		_, err = ask(t, good, plain)
	}
	require.Error(t, err, "the system trusts no CA of a test")
}

func TestServer_KnowsClientsByTheirCertificates(t *testing.T) {
	t.Parallel()
	ca, clients, other := devtest.NewCA(t), devtest.NewCA(t), devtest.NewCA(t)
	address := server(t, serverConfig(t, ca, "127.0.0.1", time.Now().Add(soon), clients.File))
	with := func(ca, by *devtest.CA) *tls.Config {
		var certificate, key string
		if by != nil {
			certificate, key = by.Issue("a client", time.Now().Add(soon))
		}
		c, err := certs.Client("127.0.0.1", file("CA", ca.File), file("C", certificate), file("K", key), silent)
		require.NoError(t, err)
		return c
	}
	said, err := ask(t, address, with(ca, clients))
	require.NoError(t, err)
	require.Equal(t, "known", said)
	said, err = ask(t, address, with(ca, nil))
	require.NoError(t, err)
	require.Equal(t, "stranger", said)
	_, err = ask(t, address, with(ca, other))
	require.ErrorContains(t, err, "tls: ")
	require.False(t, certs.IsKnown(nil))
}

func TestFiles_AreExchangedWhileTheProcessRuns(t *testing.T) {
	t.Parallel()
	first, second := devtest.NewCA(t), devtest.NewCA(t)
	certificate, key := first.Issue("localhost", time.Now().Add(soon))
	told := make(chan error, 10)
	c, err := certs.Server(file("TLS_CERT_FILE", certificate), file("TLS_KEY_FILE", key), certs.File{}, func(err error) { told <- err })
	require.NoError(t, err)
	address := server(t, c)
	trusted := filepath.Join(t.TempDir(), "ca")
	copyFile(t, first.File, trusted)
	client, err := certs.Client("localhost", file("CA", trusted), certs.File{}, certs.File{}, silent)
	require.NoError(t, err)
	_, err = ask(t, address, client)
	require.NoError(t, err)

	second.IssueTo(certificate, key, "localhost", time.Now().Add(soon))
	require.Eventually(t, func() bool { _, err = ask(t, address, client); return err != nil }, time.Minute, 50*time.Millisecond)
	require.ErrorContains(t, err, "unknown authority")
	copyFile(t, second.File, trusted)
	require.Eventually(t, func() bool { _, err = ask(t, address, client); return err == nil }, time.Minute, 50*time.Millisecond)

	require.NoError(t, os.WriteFile(certificate, []byte("half a file"), 0o600))
	require.Eventually(t, func() bool {
		_, err = ask(t, address, client)
		require.NoError(t, err, "the one before it stays")
		return len(told) > 0
	}, time.Minute, 50*time.Millisecond)
	require.ErrorContains(t, <-told, "TLS_CERT_FILE, TLS_KEY_FILE: ")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

func TestErrors_NameTheSetting(t *testing.T) {
	t.Parallel()
	ca := devtest.NewCA(t)
	certificate, key := ca.Issue("localhost", time.Now().Add(soon))
	_, otherKey := ca.Issue("localhost", time.Now().Add(soon))
	over, overKey := ca.Issue("localhost", time.Now().Add(-time.Minute))
	missing, empty, large := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(large, make([]byte, 1<<20+1), 0o600))
	for problem, files := range map[string][3]string{
		"K: read a file: open ":                      {certificate, missing, ""},
		"C: read a file: open ":                      {missing, key, ""},
		"CA: read a file: open ":                     {certificate, key, missing},
		"CA: the file holds no certificate in PEM":   {certificate, key, key},
		"C, K: tls: private key does not match":      {certificate, otherKey, ""},
		"C, K: tls: failed to find any PEM data":     {empty, key, ""},
		"C: read a file: read /dev/null: it is no":   {"/dev/null", key, ""},
		"K: read a file: read " + large + ": it is ": {certificate, large, ""},
		"C: the certificate has been over since 20":  {over, overKey, ""},
	} {
		_, err := certs.Server(file("C", files[0]), file("K", files[1]), file("CA", files[2]), silent)
		require.ErrorContains(t, err, problem)
		_, err = certs.Client("localhost", file("CA", files[2]), file("C", files[0]), file("K", files[1]), silent)
		require.ErrorContains(t, err, problem)
	}
	_, err := certs.Client("", file("CA", ca.File), certs.File{}, certs.File{}, silent)
	require.EqualError(t, err, "CA: the server is not named by a host")
}
