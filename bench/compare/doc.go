// Command compare closes the same unpaid orders in every way that people do it, side by side, under the same faults, and counts what became
// of them.
//
// Each way is a contender: a small program as those who recommend it describe it, in a process of its own for the API and for the worker, with
// a database, a virtual host and a Redis database of its own. All run on one timeline on the same servers, so that one fault meets all. What is
// counted is read from the contenders' databases, by queries that know nothing of how they work.
package main
