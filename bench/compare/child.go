package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
)

// settings are what the comparison tells a process of a contender, in the environment variable settingsVariable.
type settings struct {
	Contender string                   `json:"contender"`
	Instance  string                   `json:"instance"`
	API       bool                     `json:"api"`  // places and pays orders
	Work      bool                     `json:"work"` // closes them
	Setup     bool                     `json:"setup"`
	Address   string                   `json:"address"`
	DSN       string                   `json:"dsn"`
	Pen       string                   `json:"pen"` // a DSN too: of the comparison
	AMQP      string                   `json:"amqp"`
	Redis     string                   `json:"redis"`
	RedisDB   int                      `json:"redis_db"`
	Timeouts  map[string]time.Duration `json:"timeouts"`
}

const (
	settingsVariable = "COMPARE_SETTINGS"
	memoryPath       = "/memory" // says how many bytes are live on the heap
)

// runChild is a process of a contender, until ctx ends.
func runChild(ctx context.Context, text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	e, err := find(s.Contender)
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", s.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	pen, err := sql.Open("mysql", s.Pen)
	if err != nil {
		return err
	}
	defer func() { _ = pen.Close() }()
	in := shop{db, pen}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c := e.open(env{shop: in, name: s.Instance, amqpURL: s.AMQP, redis: s.Redis, redisDB: s.RedisDB, timeouts: s.Timeouts, log: log})
	if opened, ok := c.(interface{ open() error }); ok {
		if err := opened.open(); err != nil {
			return err
		}
	}
	if s.Setup {
		return c.Setup(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	if s.Work {
		g.Go(func() error { return c.Work(ctx) })
	}
	g.Go(func() error { return serve(ctx, s.Address, server{in, c, log}.handler(s.API)) })
	return g.Wait()
}

func find(name string) (entry, error) {
	for _, e := range append(entries(), broken()) {
		if e.name == name {
			return e, nil
		}
	}
	return entry{}, fmt.Errorf("there is no contender %q", name)
}

// server is the API of a contender.
type server struct {
	shop

	contender contender
	log       *slog.Logger
}

func (s server) handler(api bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET "+memoryPath, func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_, _ = fmt.Fprint(w, m.HeapAlloc) // who asks notices what is missing
	})
	if api {
		mux.HandleFunc("POST /place", s.answer(s.placeOne))
		mux.HandleFunc("POST /pay", s.answer(s.payOne))
	}
	return mux
}

func (s server) answer(do func(ctx context.Context, o order) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := do(r.Context(), o); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// placeOne is done when the order is committed: what its contender does afterwards is tried, and its failure logged, as a shop does that has sold
// something. A second try of an order that is there, whose first answer was lost, is told to the contender as well.
func (s server) placeOne(ctx context.Context, o order) error {
	const duplicate = 1062
	err := s.in(ctx, func(tx *sql.Tx) error {
		if err := s.place(ctx, tx, o); err != nil {
			return err
		}
		return s.contender.Placing(ctx, tx, o)
	})
	e, is := errors.AsType[*mysql.MySQLError](err)
	if again := is && e.Number == duplicate; err != nil && !again {
		return err
	}
	if err := s.contender.Placed(ctx, o); err != nil {
		s.log.WarnContext(ctx, "the order is placed, and nobody will close it", "order", o.No, "error", err)
	}
	return nil
}

func (s server) payOne(ctx context.Context, o order) error {
	return s.in(ctx, func(tx *sql.Tx) error {
		if paid, err := s.pay(ctx, tx, o.No); err != nil || !paid {
			return err
		}
		return s.contender.Paying(ctx, tx, o.No)
	})
}

func serve(ctx context.Context, address string, h http.Handler) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 60 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
