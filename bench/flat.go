package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

const (
	// What ten million rows and their indexes fit into: what is measured is the work of the database and not that of its disk.
	largePool = 12 << 30
	flatStep  = 100 * time.Millisecond // between the due times of two rows that wait
	// Of the relay that takes and settles, so that it does both often.
	flatInFlight = 64
	rowsPerTake  = 20 // about
)

// The operations that are measured. Those of a relay are its statements; the others are the library's calls without the begin and the commit
// of the transaction around them, whose time does not depend on what waits.
const (
	takeWork   = "taking work"
	settleWork = "settle"
	enqueueOne = "enqueue"
	cancelOne  = "cancel"
	lookupOne  = "lookup"
)

func operations() []string { return []string{takeWork, settleWork, enqueueOne, cancelOne, lookupOne} }

// benchFlat compares operations on a ledger in which many rows wait with the same on one in which few do, on the same server and in
// turns: a tenth of the rows, all, and all with as many finished ones beside them. Each time after ANALYZE.
func benchFlat(ctx context.Context, s services, o options) (lines []line, err error) {
	few, err := openStock(ctx, s, "bench_few")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, few.close(ctx)) }()
	many, err := openStock(ctx, s, "bench_many")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, many.close(ctx)) }()
	if err := few.fillTo(ctx, o.few); err != nil {
		return nil, err
	}
	for _, size := range []struct{ waiting, finished int }{{max(1, o.waiting/10), 0}, {o.waiting, 0}, {o.waiting, o.waiting}} {
		began := time.Now()
		if err := many.fillTo(ctx, size.waiting); err != nil {
			return lines, err
		}
		if err := many.finish(ctx, size.finished); err != nil {
			return lines, err
		}
		for _, st := range []*stock{few, many} {
			if err := errors.Join(st.analyze(ctx), st.purged(ctx), st.written(ctx)); err != nil {
				return lines, err
			}
		}
		fmt.Fprintf(o.log, "bench: flat: %d rows wait and %d are finished after %.0f s\n", size.waiting, size.finished, time.Since(began).Seconds())
		measured, err := compareStocks(ctx, few, many, o)
		if err != nil {
			return lines, err
		}
		for _, op := range operations() {
			variant := fmt.Sprintf("%s: p99 with %d rows waiting and %d finished, beside %d waiting", op, size.waiting, size.finished, o.few)
			l := compared("flat", variant, "ms", percentiles(measured.many[op], 99), percentiles(measured.few[op], 99))
			l.Operation, l.Waiting, l.Finished = op, size.waiting, size.finished
			l.Aim = 1.2
			l.Met = *l.Ratio <= l.Aim
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// samples are milliseconds by operation and round.
type samples map[string][][]float64

type measuredStocks struct{ few, many samples }

// compareStocks goes through every operation once uncounted, and then in turns.
func compareStocks(ctx context.Context, few, many *stock, o options) (measuredStocks, error) {
	m := measuredStocks{samples{}, samples{}}
	turn := func(st *stock, into samples, perRound int, work func(context.Context, int) (map[string][]float64, error)) func(int) error {
		return func(i int) error {
			got, err := work(ctx, max(1, o.calls/perRound))
			for op, ms := range got {
				if len(into[op]) <= i/perRound {
					into[op] = append(into[op], nil)
				}
				into[op][i/perRound] = append(into[op][i/perRound], ms...)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", st.schema, err)
			}
			return nil
		}
	}
	for _, part := range []struct {
		perRound int // turns
		few      func(context.Context, int) (map[string][]float64, error)
		many     func(context.Context, int) (map[string][]float64, error)
	}{{1, few.relayed, many.relayed}, {turns, few.called, many.called}} {
		if err := alternate(1, turn(few, samples{}, part.perRound, part.few), turn(many, samples{}, part.perRound, part.many)); err != nil {
			return m, err
		}
		n := o.rounds * part.perRound
		if err := alternate(n, turn(few, m.few, part.perRound, part.few), turn(many, m.many, part.perRound, part.many)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// stock is a ledger in a schema of its own, on connections whose statements are noted.
type stock struct {
	*ledger

	schema   string
	store    *outbox.Store
	notes    statements
	settled  atomic.Int64 // rows
	first    rowsAfter
	waiting  int // numbered from 0
	finished int
	canceled map[int]bool // by number
	forget   func()
}

func openStock(ctx context.Context, s services, schema string) (*stock, error) {
	cfg, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		return nil, err
	}
	admin, err := sql.Open("mysql", s.dsn)
	if err != nil {
		return nil, err
	}
	// A server that others use as well may have a schema of that name: each has one beside its own.
	schema = cfg.DBName + "_" + schema
	_, err = admin.ExecContext(ctx, "CREATE DATABASE "+schema)
	if err := errors.Join(err, admin.Close()); err != nil {
		return nil, fmt.Errorf("make a schema: %w", err)
	}
	cfg.DBName = schema
	st := &stock{schema: schema, notes: statements{kind: kindOf}, canceled: map[int]bool{}}
	dsn, forget, err := st.notes.dsn(cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	st.forget = forget
	if st.ledger, err = openLedger(ctx, dsn); err != nil {
		return nil, err
	}
	st.store, err = outbox.NewStore(st.db, outbox.StoreConfig{Observer: outbox.Observer{Settled: func(published, moved int) {
		st.settled.Add(int64(published + moved))
	}}})
	return st, err
}

func (st *stock) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := st.sql.ExecContext(ctx, "DROP DATABASE "+st.schema)
	defer st.forget()
	return errors.Join(err, st.ledger.close())
}

// kindOf tells the relay's statements apart from others.
func kindOf(text []byte) string {
	switch {
	case bytes.HasPrefix(text, []byte("(SELECT TIMESTAMPDIFF")):
		return takeWork
	case bytes.HasPrefix(text, []byte("UPDATE outbox_messages SET")) && bytes.Contains(text, []byte("publishes = publishes + 1")):
		return settleWork
	}
	return ""
}

// fillTo makes n rows wait, due from days ahead on.
func (st *stock) fillTo(ctx context.Context, n int) (err error) {
	if st.waiting == 0 {
		st.first = rowsAfter{0, min(n, copied)}
		err = st.fillMany(ctx, n, flatStep)
	} else {
		err = st.copyRows(ctx, st.first, st.waiting, n, flatStep, scheduledCopy)
	}
	st.waiting = n
	return err
}

// finish makes n rows finished, which nobody purges.
func (st *stock) finish(ctx context.Context, n int) error {
	err := st.copyRows(ctx, st.first, st.finished, n, flatStep, doneCopy)
	st.finished = n
	return err
}

func (st *stock) analyze(ctx context.Context) error {
	_, err := st.sql.ExecContext(ctx, "ANALYZE TABLE outbox_messages")
	return err
}

// written waits until the server has written what was filled.
func (st *stock) written(ctx context.Context) error {
	conn, err := st.sql.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var most float64
	if err := conn.QueryRowContext(ctx, "SELECT @@innodb_max_dirty_pages_pct").Scan(&most); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SET GLOBAL innodb_max_dirty_pages_pct = 0"); err != nil {
		return err
	}
	err = comesDown(ctx, func() (dirty int64, err error) {
		var name string
		err = conn.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'").Scan(&name, &dirty)
		return dirty, err
	})
	_, back := conn.ExecContext(context.WithoutCancel(ctx), "SET GLOBAL innodb_max_dirty_pages_pct = ?", most)
	return errors.Join(err, back)
}

// purged waits until the server has removed what was deleted from its indexes.
func (st *stock) purged(ctx context.Context) error {
	return comesDown(ctx, func() (history int64, err error) {
		err = st.sql.QueryRowContext(ctx, "SELECT COALESCE(MAX(count), 0) FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'").Scan(&history)
		return history, err
	})
}

// comesDown waits until a number of the server's is small. Others may be using the server as well, so it need not become 0.
func comesDown(ctx context.Context, look func() (int64, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("the server does not come to rest"))
	defer cancel()
	for {
		if n, err := look(); err != nil || n < 1000 {
			return err
		}
		if err := rest(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// called calls the library: n messages of each kind, one call after the other.
func (st *stock) called(ctx context.Context, n int) (map[string][]float64, error) {
	got := map[string][]float64{}
	timed := func(op string, call func() error) error {
		began := time.Now()
		err := call()
		got[op] = append(got[op], float64(time.Since(began))/float64(time.Millisecond))
		return err
	}
	inTx := func(op string, call func(tx *gorm.DB) error) error {
		return st.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			return timed(op, func() error { return call(tx) })
		})
	}
	body := payload()
	for range n {
		m := outbox.Message{
			// Anywhere in both indexes.
			Topic: topic, Key: keyOf(st.any()) + "-" + rand.Text(), Delay: farAway + time.Duration(st.any())*flatStep, Payload: body,
		}
		if err := inTx(enqueueOne, func(tx *gorm.DB) error { return st.store.Enqueue(ctx, tx, &m) }); err != nil {
			return got, err
		}
		number, err := st.live()
		if err != nil {
			return got, err
		}
		st.canceled[number] = true
		if err := inTx(cancelOne, func(tx *gorm.DB) error { return st.store.Cancel(ctx, tx, topic, keyOf(number)) }); err != nil {
			return got, fmt.Errorf("cancel %s: %w", keyOf(number), err)
		}
		if number, err = st.live(); err != nil {
			return got, err
		}
		if err := timed(lookupOne, func() error {
			_, err := st.store.Lookup(ctx, topic, keyOf(number))
			return err
		}); err != nil {
			return got, fmt.Errorf("look up %s: %w", keyOf(number), err)
		}
	}
	return got, nil
}

// any is the number of a random row.
func (st *stock) any() int { return mathrand.IntN(st.waiting) } //nolint:gosec // no secret

// live is the number of a random row that waits and was not canceled.
func (st *stock) live() (int, error) {
	for range 1000 {
		number := st.any()
		if !st.canceled[number] {
			return number, nil
		}
	}
	return 0, fmt.Errorf("most of %d rows are canceled", st.waiting)
}

// relayed has a relay take and settle rows, about n times each. The publisher confirms at once: what is measured are the statements.
func (st *stock) relayed(ctx context.Context, n int) (map[string][]float64, error) {
	rows := n * rowsPerTake
	if err := st.fill(ctx, rows, dueIn, time.Microsecond); err != nil {
		return nil, err
	}
	relay, err := outbox.NewRelay(st.store, instant{}, outbox.RelayConfig{
		Owner: "bench", Horizon: horizon, Poll: time.Millisecond, MaxInFlight: flatInFlight,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drainEnd, errors.New("the relay was too slow"))
	defer cancel()
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	st.settled.Store(0)
	go func() { ended <- relay.Run(relaying) }()
	for err == nil && st.settled.Load() < int64(rows) {
		err = rest(ctx, 10*time.Millisecond)
	}
	stop()
	err = errors.Join(err, <-ended)
	got := map[string][]float64{takeWork: st.notes.take(takeWork), settleWork: st.notes.take(settleWork)}
	if err == nil {
		_, err = st.sql.ExecContext(ctx, "DELETE FROM outbox_messages WHERE state = 'published'")
	}
	return got, errors.Join(err, st.purged(ctx))
}

// instant is a publisher that confirms everything at once.
type instant struct{}

func (instant) Publish(_ context.Context, batch []outbox.Publication) []outbox.Receipt {
	return make([]outbox.Receipt, len(batch))
}
