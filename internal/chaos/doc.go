// Package chaos runs the whole system under faults and checks, when they are over, that its promises were kept.
//
// It starts a MariaDB and a RabbitMQ of its own, an api and three workers as processes of the real program, and a proxy in
// front of every connection between them. While orders are placed, paid, canceled and rescheduled, a schedule drawn from a
// seed kills, freezes, wipes and cuts them off. Then everything heals, the load ends, and the check reads the database with
// queries of its own and compares it with what the clients were told. It shares nothing with the product: not a query, not a
// type, not a connection.
//
// The same seed gives the same faults in the same order, not the same run: processes and networks keep their own time. A
// run that finds nothing has not shown that nothing can be found.
package chaos

import "time"

// How the product is set up: as much faster than an installation as a run is shorter than a day.
const (
	namespace = "chaos"
	workers   = 3
	// The grace is longer than anything here takes but a repair, so that a message which had to wait for one stands out.
	grace         = 20 * time.Second
	reconcileEach = 5 * time.Second
	horizon       = time.Minute
	drainLimit    = 15 * time.Second

	flashTimeout   = 3 * time.Second
	normalTimeout  = 8 * time.Second
	remindBefore   = 2 * time.Second
	presaleTimeout = 25 * time.Second
)

// What is demanded of it.
const (
	// How long after the end of a fault the system may still be getting back on its feet.
	settling = 10 * time.Second
	// How late a message may be that was due when nothing was wrong, and had not been for settling.
	bound = grace / 2
	// How many more goroutines than before the faults a process may have after them: an HTTP connection
	// has two, a database connection one, and the load makes both come and go.
	goroutineSlack = 30
)
