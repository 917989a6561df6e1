package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/model"
)

// serve runs the server on a port of its own. The channel yields what Serve returned.
func (s *shop) serve(ctx context.Context) (addr string, served <-chan error) {
	s.t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(ctx, ln) }()
	return ln.Addr().String(), done
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

func post(body string) string {
	return fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func status(t *testing.T, conn net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp.StatusCode
}

// Scenario 39: half-sent headers on 500 connections.
func TestScenario39_HalfSentHeadersAreClosedAndDisturbNobody(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "1000000")
	ctx, stop := context.WithCancel(t.Context())
	addr, served := s.serve(ctx)

	began := time.Now()
	var slow sync.WaitGroup
	for range 500 {
		conn := dial(t, addr)
		_, err := io.WriteString(conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Ty")
		require.NoError(t, err)
		opened := time.Now()
		slow.Go(func() {
			_, err := io.Copy(io.Discard, conn) // ends when the server closes
			if took := time.Since(opened); err != nil || took > 10*time.Second {
				t.Errorf("closed after %v: %v", took, err)
			}
		})
	}
	requests := 0
	for ; time.Since(began) < 3*time.Second; requests++ { // while all of them are open
		conn := dial(t, addr)
		_, err := io.WriteString(conn, post(order("cup")))
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status(t, conn))
		require.NoError(t, conn.Close())
	}
	require.Positive(t, requests)
	slow.Wait()
	stop()
	require.NoError(t, <-served)
}

// Scenario 40, first half: the client disconnects right after the POST.
func TestScenario40_DisconnectAfterPostIsAllOrNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "1000")
	ctx, stop := context.WithCancel(t.Context())
	addr, served := s.serve(ctx)
	for i := range 200 {
		conn := dial(t, addr)
		_, err := io.WriteString(conn, post(order("cup")))
		require.NoError(t, err)
		if tcp, ok := conn.(*net.TCPConn); ok && i%2 == 0 {
			require.NoError(t, tcp.SetLinger(0)) // a reset instead of a goodbye
		}
		if i%10 == 0 {
			require.Equal(t, http.StatusCreated, status(t, conn)) // one that waits
		}
		require.NoError(t, conn.Close())
	}
	stop()
	require.NoError(t, <-served, "what was taken in is finished when Serve returns")

	orders := s.number("SELECT COUNT(*) FROM orders")
	require.GreaterOrEqual(t, orders, int64(20))
	for _, query := range []string{
		"SELECT COUNT(*) FROM orders o JOIN order_items i ON i.order_no = o.no", "SELECT COUNT(*) FROM order_items",
		"SELECT COUNT(*) FROM orders o JOIN stock_movements m ON m.order_no = o.no AND m.direction = 'reserve'",
		"SELECT COUNT(*) FROM stock_movements WHERE direction = 'reserve'",
		"SELECT COUNT(*) FROM orders o JOIN outbox_messages m ON m.message_key = o.no AND m.state = 'scheduled'",
		"SELECT COUNT(*) FROM outbox_messages", "SELECT (1000 - available) DIV 2 FROM products", "SELECT reserved DIV 2 FROM products",
	} {
		require.Equal(t, orders, s.number(query), query)
	}
}

// Scenario 40, second half: SIGTERM during slow POSTs.
func TestScenario40_SlowPostsAreAnsweredAfterSIGTERM(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "1000")
	s.stock("mug", "1000")
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	addr, served := s.serve(ctx)

	// One is slow to send its body. The server asks for it once its handler has begun to read.
	sending := dial(t, addr)
	whole := strings.Replace(post(order("cup")), "Host:", "Expect: 100-continue\r\nHost:", 1)
	head := strings.Index(whole, "{")
	_, err := io.WriteString(sending, whole[:head])
	require.NoError(t, err)
	proceed := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err = io.ReadFull(sending, proceed)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", string(proceed))
	_, err = io.WriteString(sending, whole[head:len(whole)-20])
	require.NoError(t, err)
	// One is slow because the database is.
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE products SET name = 'held' WHERE sku = 'mug'")
	require.NoError(t, err)
	waiting := dial(t, addr)
	_, err = io.WriteString(waiting, post(order("mug")))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return s.number("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE products%' AND db = DATABASE()") > 0
	}, 30*time.Second, 10*time.Millisecond, "the second is in flight")

	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	require.Eventually(t, func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 30*time.Second, 10*time.Millisecond, "nothing new is taken")
	require.Equal(t, http.StatusServiceUnavailable, s.do("GET", "/readyz", "").status)
	require.Equal(t, http.StatusOK, s.do("GET", "/healthz", "").status)

	_, err = io.WriteString(sending, whole[len(whole)-20:])
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status(t, sending))
	require.NoError(t, tx.Rollback())
	require.Equal(t, http.StatusCreated, status(t, waiting))
	require.NoError(t, <-served)
	require.Equal(t, int64(2), s.number("SELECT COUNT(*) FROM orders"))
}

func TestServe_ClosesWhatOutlastsItsBudget(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan error, 1)
	stuck := stub{order: func(ctx context.Context, _ string) (model.Order, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return model.Order{}, ctx.Err()
	}}
	server := newServer(t, api.Config{DrainTimeout: 200 * time.Millisecond, Deadline: time.Hour}, stuck, quiet{}, stub{}, always)
	ctx, stop := context.WithCancel(t.Context())
	s := &shop{t: t, server: server}
	addr, served := s.serve(ctx)
	_, err := io.WriteString(dial(t, addr), "GET /v1/orders/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	<-started
	began := time.Now()
	stop()
	require.ErrorIs(t, <-served, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 10*time.Second)
	require.ErrorIs(t, <-ended, context.Canceled, "the handler is told")
}

// lines is a log that a test can wait for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRun_ListensWhereItIsTold(t *testing.T) {
	t.Parallel()
	log := make(lines, 10)
	server := newServer(t, api.Config{Addr: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(log, nil))}, stub{}, quiet{}, stub{}, always)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	require.Contains(t, <-log, "neither ADMIN_TOKEN nor API_TOKEN is set: everything is open to whoever is on this machine, and nothing listens elsewhere")
	_, addr, found := strings.Cut(strings.TrimSpace(<-log), "addr=")
	require.True(t, found)
	conn := dial(t, addr)
	_, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status(t, conn))

	second := newServer(t, api.Config{Addr: addr}, stub{}, quiet{}, stub{}, always)
	require.ErrorContains(t, second.Run(t.Context()), "listen")
	stop()
	require.NoError(t, <-done)
}
