// Package ordering keeps orders that close themselves: the transactions behind place, pay, cancel, expire and stock.
//
// Guarantees, by the database alone and for any number of processes:
//
//   - An order, its items, its reserved stock and the message that will close it exist together or not at all.
//   - Every change of status is a compare-and-set: of a payment, a cancel and an expiry that race, one wins, and units leave
//     "reserved" exactly once. Available + reserved + sold is always the sum of a product's adjustments.
//   - A payment id is recorded once. Money that an order cannot take becomes a refund record in the same transaction.
//   - An order's due time and its message's are one instant, read from the database's clock.
//
// It does not promise fairness between racing calls, nor that a call which returned model.ErrUnavailable changed nothing: a
// commit whose answer was lost may stand. Payment ids and idempotency keys make asking again safe.
//
// # Locks
//
// Every transaction locks in this order: the message that closes the order, the one that reminds of it, the order, then the products by SKU. The products come last because
// they are what orders share. Transactions are short, hold no network call but their own statements, and are run again as a
// whole when they lose a deadlock.
package ordering
