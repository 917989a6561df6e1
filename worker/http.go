package worker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/duebox/duebox/internal/certs"
	"github.com/duebox/duebox/internal/loopback"
	"github.com/duebox/duebox/outbox"
)

const (
	askTimeout   = 2 * time.Second // what a probe may wait for the database
	closeTimeout = time.Second     // what answers under way may take when the worker has drained
)

// serve answers on ln until the returned function is called, which waits for answers under way. An error of the listener
// goes to cancel.
func (w *Worker) serve(ctx context.Context, ln net.Listener, cancel context.CancelCauseFunc) (stop func() error) {
	server := &http.Server{
		Handler:           w.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(w.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() {
		err := w.answer(server, ln)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		served <- err
		cancel(err)
	}()
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // a probe that was cut off asks again
		}
		if err := <-served; err != nil {
			return fmt.Errorf("http listener: %w", err)
		}
		return nil
	}
}

func (w *Worker) answer(server *http.Server, ln net.Listener) error {
	if w.cfg.TLS == nil {
		return server.Serve(ln)
	}
	server.TLSConfig = w.cfg.TLS
	return server.ServeTLS(ln, "", "")
}

func (w *Worker) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, req *http.Request) {
		ready := w.Readiness(req.Context())
		status := http.StatusOK
		if ready.Status != "ready" {
			status = http.StatusServiceUnavailable
		}
		writeJSON(rw, status, ready)
	})
	mux.Handle("GET /metrics", w.guarded(promhttp.HandlerFor(w.cfg.Registry, promhttp.HandlerOpts{Registry: w.cfg.Registry})))
	return mux
}

// Readiness says whether the worker does its work, and what is missing.
type Readiness struct {
	// Status is ready, waiting (something is missing, the worker waits for it) or draining.
	Status    string             `json:"status"`
	Database  string             `json:"database"` // ok, away, or that the tables are missing
	Publisher PublisherReadiness `json:"publisher"`
	Consumers ConsumerReadiness  `json:"consumers"`
	Reconcile ReconcileReadiness `json:"reconcile"`
}

// PublisherReadiness is the state of the connection for publishing.
type PublisherReadiness struct {
	Connected bool   `json:"connected"`
	Blocked   bool   `json:"blocked"`       // the broker takes no messages for now
	Strategy  string `json:"strategy"`      // in use, or last used; before the first connection what was asked for
	Why       string `json:"why,omitempty"` // that strategy
	Epoch     int64  `json:"epoch"`
	Reason    string `json:"reason,omitempty"` // why it is not connected, or blocked
}

// ConsumerReadiness is how many queues are consumed, and how many should be.
type ConsumerReadiness struct {
	Have int `json:"have"`
	Want int `json:"want"`
}

// Readiness asks the database, and says what is known of the broker. The worker is ready when the database answers, the
// publisher is connected and every queue is consumed.
func (w *Worker) Readiness(ctx context.Context) Readiness {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	state := w.publisher.State()
	r := Readiness{
		Status: "ready", Database: "ok",
		Publisher: PublisherReadiness{
			Connected: state.Connected, Blocked: state.Blocked, Strategy: string(state.Strategy), Why: state.Why, Epoch: state.Epoch, Reason: state.Reason,
		},
	}
	r.Consumers.Have, r.Consumers.Want = w.consumer.Consuming()
	switch err := w.askDatabase(ctx); {
	case errors.Is(err, errNoTables):
		r.Database = err.Error()
	case err != nil:
		r.Database = "away"
	default:
		r.Reconcile = w.reconcileReadiness(ctx)
	}
	switch {
	case w.draining.Load():
		r.Status = "draining"
	case r.Database != "ok" || !state.Connected || r.Consumers.Have < r.Consumers.Want:
		r.Status = "waiting"
	}
	return r
}

var errNoTables = errors.New("no tables: run duebox migrate")

// askDatabase returns nil if the database answers and has the worker's tables.
func (w *Worker) askDatabase(ctx context.Context) error {
	var n int
	return orNoTables(w.pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM outbox_meta`).Scan(&n))
}

// orNoTables is err, or errNoTables if that is what err says.
func orNoTables(err error) error {
	if outbox.LacksTable(err) {
		return errNoTables
	}
	return err
}

// guarded asks for the admin token. Where there is none it is for this machine: a page of another one, whose name resolves to this (DNS
// rebinding), gives another Host.
func (w *Worker) guarded(next http.Handler) http.Handler {
	if w.cfg.ClientCertificates {
		next = certified(next)
	}
	if w.cfg.AdminToken == "" {
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			if !loopback.Is(req.Host) {
				writeJSON(rw, http.StatusForbidden, map[string]string{"status": "without ADMIN_TOKEN only localhost and loopback addresses are answered"})
				return
			}
			next.ServeHTTP(rw, req)
		})
	}
	want := sha256.Sum256([]byte(w.cfg.AdminToken))
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(token)) // of equal length, so that the comparison tells nothing
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			rw.Header().Set("WWW-Authenticate", "Bearer")
			writeJSON(rw, http.StatusUnauthorized, map[string]string{"status": "unauthorized"})
			return
		}
		next.ServeHTTP(rw, req)
	})
}

// certified lets those requests pass that have shown a certificate which holds.
func certified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if !certs.IsKnown(req.TLS) {
			writeJSON(rw, http.StatusForbidden, map[string]string{"status": "a client certificate is required"})
			return
		}
		next.ServeHTTP(rw, req)
	})
}

func writeJSON(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body) // the client is gone
}
