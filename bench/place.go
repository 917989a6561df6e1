package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/config"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

const (
	clients  = 16
	placeEnd = 5 * time.Minute // bounds one turn
)

// benchPlace compares how many orders a second the API takes, over HTTP on the loopback interface and as the program wires it with its
// defaults, with how many the same statements place that database/sql alone sends. Both have as many clients, and share the machine with them.
func benchPlace(variant string, skus int) func(context.Context, services, options) (line, error) {
	return func(ctx context.Context, s services, o options) (l line, err error) {
		led, store, err := openShop(ctx, s.dsn)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, led.close()) }()
		if err := fillShelves(ctx, led.sql, skus); err != nil {
			return line{}, err
		}
		web, err := startAPI(ctx, led, store)
		if err != nil {
			return line{}, err
		}
		defer func() { err = errors.Join(err, web.end()) }()

		next := 0
		turn := func(round func(n, first int) error, seconds []float64) func(int) error {
			return func(i int) error {
				n := max(clients, o.orders/turns)
				next += n
				began := time.Now()
				err := round(n, next-n)
				seconds[i/turns] += time.Since(began).Seconds()
				return err
			}
		}
		overHTTP := func(n, first int) error {
			return web.place(ctx, n, func(i int) (string, string) { return skuOf((first + i) % skus), userOf(first + i) })
		}
		direct := func(n, first int) error {
			_, err := each(clients, n, func(_, i int) error {
				return bareOrder(ctx, led.sql, skuOf((first+i)%skus), first+i, enqueueBare(ctx))
			})
			return err
		}
		through, alone := make([]float64, o.rounds), make([]float64, o.rounds) // round -> seconds
		// The first transactions of a connection are slow; nobody's are counted.
		for _, round := range []func(n, first int) error{overHTTP, direct} {
			if err := turn(round, make([]float64, 1))(0); err != nil {
				return line{}, err
			}
		}
		if err := alternate(o.rounds*turns, turn(overHTTP, through), turn(direct, alone)); err != nil {
			return line{}, err
		}
		n := float64(turns * max(clients, o.orders/turns))
		l = compared("place", fmt.Sprintf("POST /v1/orders beside its transaction in bare SQL, %d clients, %s", clients, variant), "orders/s",
			rates(n, through), rates(n, alone))
		l.Aim = 0.7
		l.Met = *l.Ratio >= l.Aim
		return l, nil
	}
}

func rates(n float64, seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = n / s
	}
	return out
}

// enqueueBare writes the two messages of an order as the program's outbox does.
func enqueueBare(ctx context.Context) func(tx *sql.Tx, no string, due time.Time) (int64, error) {
	return func(tx *sql.Tx, no string, due time.Time) (id int64, err error) {
		body := model.OrderPayload{No: no}.Encode()
		shard := int(no[len(no)-1]) % 16 // spreads them, as a hash does
		put := func(topic string, at time.Time) (sql.Result, error) {
			return tx.ExecContext(ctx, insertMessage, shard, []byte(topic), []byte(no), false, []byte(model.PayloadType), []byte(nil), body, sqlTime(at))
		}
		expire, err := put(model.TopicExpire, due)
		if err != nil {
			return 0, err
		}
		if _, err := put(model.TopicRemind, due.Add(remindedIn-orderDue)); err != nil {
			return 0, err
		}
		return expire.LastInsertId()
	}
}

// webShop is the API, in this process, and where it listens.
type webShop struct {
	addr string
	end  func() error
}

func startAPI(ctx context.Context, led *ledger, store *outbox.Store) (webShop, error) {
	cfg, err := config.Load(nil)
	if err != nil {
		return webShop{}, err
	}
	orders, err := ordering.New(led.db, store, ordering.Config{
		Normal: cfg.OrderTimeoutNormal, Flash: cfg.OrderTimeoutFlash, Presale: cfg.OrderTimeoutPresale, RemindBefore: cfg.OrderRemindBefore,
	})
	if err != nil {
		return webShop{}, err
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return webShop{}, err
	}
	server, err := api.New(api.Config{Log: slog.New(slog.NewJSONHandler(nowhere, nil))}, orders, store.Direct(), store.Operator(outbox.OperatorConfig{}), led.sql.PingContext) //nolint:contextcheck // requests have contexts of their own
	if err != nil {
		return webShop{}, errors.Join(err, nowhere.Close())
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return webShop{}, errors.Join(err, nowhere.Close())
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, ln) }()
	return webShop{addr: ln.Addr().String(), end: func() error {
		stop()
		return errors.Join(<-served, nowhere.Close())
	}}, nil
}

// place places n orders, each client on a connection of its own that it keeps for the turn. Clients are as slim as they can be: what they
// cost is no part of the API.
func (w webShop) place(ctx context.Context, n int, what func(i int) (sku, user string)) error {
	ctx, cancel := context.WithTimeout(ctx, placeEnd)
	defer cancel()
	var (
		conns  = make([]net.Conn, clients)
		in     = make([]*bufio.Reader, clients)
		dialer net.Dialer
	)
	for c := range clients {
		conn, err := dialer.DialContext(ctx, "tcp", w.addr)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		conns[c], in[c] = conn, bufio.NewReader(conn)
	}
	_, err := each(clients, n, func(c, i int) error {
		sku, user := what(i)
		body := fmt.Sprintf(`{"kind":"normal","user":%q,"items":[{"sku":%q,"quantity":1,"price":%d}]}`, user, sku, price)
		_, err := fmt.Fprintf(conns[c], "POST /v1/orders HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", w.addr, len(body), body)
		if err != nil {
			return err
		}
		return readPlaced(in[c])
	})
	return err
}

func readPlaced(in *bufio.Reader) error {
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("place an order: %s: %s", answer.Status, body)
	}
	return nil
}
