package main

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/duebox/duebox/outbox/rabbitmq"
)

// A contender is a way to close unpaid orders. Its API calls Placing in the transaction that places an order and Placed after it; what waits for due
// times is Work.
type contender interface {
	// Setup makes what the contender needs, once, in an empty place.
	Setup(ctx context.Context) error
	Placing(ctx context.Context, tx *sql.Tx, o order) error
	Placed(ctx context.Context, o order) error
	Paying(ctx context.Context, tx *sql.Tx, no string) error
	// Work closes orders as they come due, until ctx ends.
	Work(ctx context.Context) error
}

// env is where a contender works.
type env struct {
	shop
	name           string // of the contender: what it makes on the broker begins so
	amqpURL, redis string
	redisDB        int
	timeouts       map[string]time.Duration // of each kind of order
	log            *slog.Logger
}

// plainly is what contenders have in common who do nothing in the shop's own transactions.
type plainly struct{}

func (plainly) Setup(context.Context) error                   { return nil }
func (plainly) Placing(context.Context, *sql.Tx, order) error { return nil }
func (plainly) Placed(context.Context, order) error           { return nil }
func (plainly) Paying(context.Context, *sql.Tx, string) error { return nil }

// entry is a contender as the comparison knows it.
type entry struct {
	name, title string
	open        func(e env) contender
	// workers is how many processes do the work. None: the API does it in its own.
	workers int
	files   []string // its code, for counting lines
	closes  string   // how, and how many at a time
	needs   string   // what has to be installed beside MySQL
	sees    string   // what an operator can look at
	undoes  string   // how a message is withdrawn or moved
}

// entries are all contenders, in the order of the report.
func entries() []entry {
	return []entry{
		{
			name: "scan", title: "table scan on a timer", workers: 1, open: func(e env) contender { return &scan{env: e} }, files: []string{"each.go", "scan.go"},
			closes: "each second, one by one", needs: "nothing", sees: "the orders themselves", undoes: "by the order's status and due time",
		},
		{
			name: "scan-paged", title: "table scan, indexed, paged, under a lock", workers: 2, open: func(e env) contender { return &pagedScan{env: e} }, files: []string{"each.go", "scanpaged.go"},
			closes: "2 workers, each second, pages of 500 in a transaction", needs: "nothing", sees: "the orders themselves", undoes: "by the order's status and due time",
		},
		{
			name: "redis-zset", title: "Redis sorted set, polled", workers: 1, open: func(e env) contender { return newSortedSet(e) }, files: []string{"each.go", "rediszset.go", "redisclient.go"},
			closes: "each second, pages of 500, one by one", needs: "Redis", sees: "ZRANGE: order numbers with their due times", undoes: "ZREM, ZADD",
		},
		{
			name: "redis-expiry", title: "Redis key expiry events", workers: 1, open: func(e env) contender { return newExpiry(e) }, files: []string{"each.go", "redisexpiry.go", "redisclient.go"},
			closes: "8 at a time", needs: "Redis with notify-keyspace-events Ex", sees: "keys with a TTL", undoes: "DEL, PEXPIRE",
		},
		{
			name: "wheel", title: "time wheel in the process", workers: 0, open: func(e env) contender { return newWheel(e) }, files: []string{"each.go", "wheel.go"},
			closes: "ticks of 100 ms, 8 at a time", needs: "nothing, and one process only", sees: "nothing", undoes: "not from outside",
		},
		{
			name: "ttl-queues", title: "a TTL queue for each delay, dead-lettered", workers: 1, open: func(e env) contender { return &ttlQueues{env: e, publisher: &rabbit{url: e.amqpURL}} }, files: []string{"each.go", "ttlqueues.go", "rabbit.go"},
			closes: "8 at a time, prefetch 50", needs: "RabbitMQ", sees: "how many messages a queue holds", undoes: "not at all",
		},
		{
			name: "ttl-messages", title: "a TTL for each message in one queue", workers: 1, open: func(e env) contender { return &ttlMessages{env: e, publisher: &rabbit{url: e.amqpURL}} }, files: []string{"each.go", "ttlmessages.go", "rabbit.go"},
			closes: "8 at a time, prefetch 50", needs: "RabbitMQ", sees: "how many messages the queue holds", undoes: "not at all",
		},
		{
			name: "delayed", title: "x-delayed-message exchange alone", workers: 1, open: func(e env) contender { return &delayed{env: e, publisher: &rabbit{url: e.amqpURL}} }, files: []string{"each.go", "delayed.go", "rabbit.go"},
			closes: "8 at a time, prefetch 50", needs: "RabbitMQ up to 4.2 with the plugin", sees: "how many messages the exchange holds", undoes: "not at all",
		},
		{
			name: "duebox-plugin", title: "duebox, strategy plugin", workers: 1, open: func(e env) contender { return newDue(e, rabbitmq.Plugin) }, files: []string{"duebox.go"},
			closes: dueboxCloses, needs: "RabbitMQ up to 4.2 with the plugin", sees: dueboxSees, undoes: dueboxUndoes,
		},
		{
			name: "duebox-hold", title: "duebox, strategy hold", workers: 1, open: func(e env) contender { return newDue(e, rabbitmq.Hold) }, files: []string{"duebox.go"},
			closes: dueboxCloses, needs: "RabbitMQ", sees: dueboxSees, undoes: dueboxUndoes,
		},
		{
			name: "duebox-tiers", title: "duebox, strategy tiers", workers: 1, open: func(e env) contender { return newDue(e, rabbitmq.Tiers) }, files: []string{"duebox.go"},
			closes: dueboxCloses, needs: "RabbitMQ", sees: dueboxSees, undoes: dueboxUndoes,
		},
		{
			name: "watermill", title: "Watermill, delayed messages in MySQL", workers: 1, open: func(e env) contender { return newWatermill(e) }, files: []string{"watermill.go"},
			closes: "each second, 100 at a time, one by one", needs: "nothing", sees: "the rows of its table", undoes: "by SQL, by hand",
		},
	}
}

const (
	dueboxCloses = "lots of up to 32 in a transaction"
	dueboxSees   = "each message, its story and what is late: page, command, HTTP"
	dueboxUndoes = "cancel and reschedule, in the order's transaction"
)
