// Package worker runs everything behind the API in one [Worker.Run]: the relay that hands messages to the broker, the
// consumers that commit their effects, what runs by the clock, and a small HTTP listener for probes and metrics.
//
// It guarantees that Run returns only when all of that has ended, that it drains in an order in which nothing is begun that
// cannot be finished, and that neither a broker nor a database that is away ends it: it waits for them for ever.
//
// Any number of workers may run against one database and one broker. They share the work; none is special.
//
// It does not promise that a drain finishes everything: what is left is published or delivered again, to another worker
// or to the next, and the guard lets each effect happen once.
package worker
