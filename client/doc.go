// Package client speaks the HTTP API of duebox: orders, products, delayed messages, what consumers elsewhere ask of a delivery, and
// what operators do.
//
// It promises that every call ends: each try has a deadline, all tries together have one, and a context that ends is heeded at once. What may be
// repeated is repeated when there was no answer or the server was busy, with growing pauses, and Retry-After is followed. What
// may not be repeated, because doing it twice would be two things, is sent once; each method says so. An answer that is no success is a
// *ProblemError, whose type TypeOf tells.
//
// It does not promise that a call which failed changed nothing: a request without an answer may have been carried out.
//
// A Client has a method for each operation of the OpenAPI document, by the operation's id, and needs nothing but the standard library.
package client
