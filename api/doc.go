// Package api is the HTTP face of duebox: orders, products, a gateway to messages, runs of the reconciler, health and metrics.
//
// Guarantees: input is read strictly, and what is refused with a 4xx has written nothing; every error is a problem document
// (RFC 9457) that names the field at fault and shows nothing of the inside; every request has a deadline; a database that is away is
// a 503 with Retry-After, never a hang; a request that was taken in is answered before Serve returns, within the drain's
// budget.
//
// It does not promise that a request which got no answer, or a 503, changed nothing: asking again with the same Idempotency-Key
// or payment id is safe.
package api
