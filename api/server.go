package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Orders is what the API needs of the order service. Its errors are those of package model; any other is answered with a
// 500. It must be safe for concurrent use and return when ctx ends.
type Orders interface {
	Place(ctx context.Context, d model.Draft, idempotencyKey string) (model.Order, error)
	Order(ctx context.Context, no string) (model.Order, error)
	Orders(ctx context.Context, f model.OrderFilter) (orders []model.Order, next string, err error)
	Pay(ctx context.Context, no string, p model.Payment) (model.Order, error)
	Cancel(ctx context.Context, no string) (model.Order, error)
	Extend(ctx context.Context, no string, due time.Time) (model.Order, error)
	SetStock(ctx context.Context, want model.Stocking) (model.Product, error)
	Product(ctx context.Context, sku string) (model.Product, error)
}

// Messages is what the message gateway needs of the ledger; outbox.Direct has it. Its errors are those of package outbox. It must be
// safe for concurrent use and return when ctx ends.
type Messages interface {
	Enqueue(ctx context.Context, m *outbox.Message) (outbox.Record, error)
	Reschedule(ctx context.Context, topic, key string, due time.Time, delay time.Duration) (outbox.Record, error)
	Cancel(ctx context.Context, topic, key string) error
	Lookup(ctx context.Context, topic, key string) (outbox.Record, error)
	LookupID(ctx context.Context, id int64) (outbox.Record, error)
	MayRun(ctx context.Context, d outbox.Delivery) error
	Finish(ctx context.Context, d outbox.Delivery) error
}

// Config tunes a Server. The zero value is usable.
type Config struct {
	// Addr is where Run listens. Default 127.0.0.1:8080.
	Addr string
	// APIToken is the bearer token that everything else below /v1 asks for. Empty: none.
	APIToken string
	// AdminToken is the bearer token that /metrics and everything below /v1/admin ask for. Empty: none, and with an APIToken
	// everything below /v1/admin is refused.
	AdminToken string
	// JWTSecret or JWKSFile, a JWK Set that is read anew when it changes, has those who have a signed identity use the routes of orders in place of an
	// APIToken, which has to be set: HS256 by the secret of 32 bytes or more, RS256 or ES256 by the file. Each sees and touches only orders of the user
	// that is its subject. Empty: none.
	JWTSecret, JWKSFile string
	// JWTIssuer and JWTAudience are what an identity has to name. Empty: whatever it names.
	JWTIssuer, JWTAudience string
	// TLS has Serve speak TLS. Default: it does not.
	TLS *tls.Config
	// ClientCertificates has only those use the server who have shown a certificate that TLS verifies; probes aside.
	ClientCertificates bool
	// Rate is how many requests per second a client may make whose credentials are right, twice as many at once; one that shares a token with
	// others is told apart by its address. Zero: any number.
	Rate float64
	// RateUnknown is how many per second may come from one address with wrong credentials or none, where some are needed. Zero: any number.
	RateUnknown float64
	// Registry gets the HTTP metrics, and is what /metrics shows. Default: a new one.
	Registry *prometheus.Registry
	// Tracer makes a span of each request, in the trace that its header traceparent names. Default: none.
	Tracer trace.Tracer
	// Log gets a line for each request: level debug for probes, scrapes, and the page's files and overview, info for all others. What could not be served
	// gets another one, with the cause. Default: none.
	Log *slog.Logger
	// Deadline is how long a request may work after its body was read. Default 15 s.
	Deadline time.Duration
	// DrainTimeout is how long Serve waits for requests in flight once its context has ended. Default 20 s.
	DrainTimeout time.Duration
}

const (
	headerTimeout = 5 * time.Second // half-sent headers end here
	readTimeout   = 15 * time.Second
	writeTimeout  = 40 * time.Second // reading, deadline and a slow reader
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
	maxBody       = 64 << 10
	// Of a message: outbox.DefaultMaxPayload as base64, its headers, and what is around them.
	maxMessageBody = 512 << 10
)

// Server answers HTTP requests. Handler may be used at once and by many; Run or Serve may be called once.
type Server struct {
	cfg        Config
	orders     Orders
	messages   Messages
	ops        Operator
	overview   *snapshot
	ready      func(ctx context.Context) error
	http       *http.Server
	metrics    *httpMetrics
	draining   atomic.Bool
	apiToken   *token
	adminToken *token
	sessions   *sessions
	identities *identities
	limits     limits
}

// New returns a server for orders, messages and operators. It is ready while ready, which must keep to its context, returns nil; clients are told of
// ErrNoTables, and of any other error that the service cannot answer for now. New reads Config.JWKSFile and does no other I/O.
func New(cfg Config, orders Orders, messages Messages, ops Operator, ready func(ctx context.Context) error) (*Server, error) {
	if orders == nil || messages == nil || ops == nil || ready == nil {
		return nil, errors.New("api: orders, messages, operators' calls and a readiness check are required")
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:8080"
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = 15 * time.Second
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 20 * time.Second
	}
	if cfg.Deadline < 0 || cfg.DrainTimeout < 0 || cfg.Rate < 0 || cfg.RateUnknown < 0 {
		return nil, errors.New("api: Deadline, DrainTimeout, Rate and RateUnknown must not be below zero")
	}
	metrics, err := newHTTPMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(cfg.AdminToken)
	if err != nil {
		return nil, err
	}
	identities, err := newIdentities(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, orders: orders, messages: messages, ops: ops, overview: newSnapshot(), ready: ready, metrics: metrics,
		apiToken: newToken(cfg.APIToken), adminToken: newToken(cfg.AdminToken), sessions: sessions,
		identities: identities,
		limits:     newLimits(cfg),
	}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Handler answers requests without a listener, without Serve's time limits on connections.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Run listens on Config.Addr and serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return err // it says: listen, and where
	}
	return s.Serve(ctx, ln)
}

// Serve owns ln and serves until ctx ends. Then it takes nothing new, is not ready any more, and waits for the requests in
// flight, which are those whose headers it has read: nil if all were answered. After Config.DrainTimeout it closes their
// connections, which ends their contexts, and returns an error.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.tellAccess(ctx)
	s.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "http server listens", slog.String("addr", ln.Addr().String()))
	served := make(chan error, 1)
	go func() {
		if s.cfg.TLS == nil {
			served <- s.http.Serve(ln)
			return
		}
		s.http.TLSConfig = s.cfg.TLS
		served <- s.http.ServeTLS(ln, "", "")
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	err := s.http.Shutdown(drain)
	if err != nil {
		err = errors.Join(fmt.Errorf("drain http server: %w", err), s.http.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve: %w", end))
	}
	return err
}

// tellAccess says what is open to everybody who can connect, which the settings allow on a loopback address only.
func (s *Server) tellAccess(ctx context.Context) {
	switch {
	case s.apiToken == nil && s.adminToken == nil:
		s.cfg.Log.WarnContext(ctx, "neither ADMIN_TOKEN nor API_TOKEN is set: everything is open to whoever is on this machine, and nothing listens elsewhere")
	case s.apiToken == nil:
		s.cfg.Log.WarnContext(ctx, "API_TOKEN is not set: orders and messages are open to whoever is on this machine, and nothing listens elsewhere")
	case s.adminToken == nil:
		s.cfg.Log.WarnContext(ctx, "ADMIN_TOKEN is not set: metrics are open to whoever is on this machine, the operator's routes are shut, and nothing listens elsewhere")
	}
}
