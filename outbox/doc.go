// Package outbox keeps delayed messages that cannot get lost in MySQL and hands them to a broker when they are due.
//
// # Guarantees
//
//   - Atomic: [Store.Enqueue] writes the message in the caller's transaction. It exists if and only if that committed.
//   - Never lost: a committed message takes effect or ends in front of an operator, whatever happens to the relay, the
//     consumer, the broker (its disk included) or the network. Only losing the database loses messages.
//   - Effect once: delivery is at least once; [Store.Handle] commits the effect exactly once, and
//     [Store.HandleBatch] those of many deliveries together.
//   - Never early: no effect before the due time by the database's clock.
//   - Withdrawable: [Store.Cancel] and [Store.Reschedule] act inside the caller's transaction; the database decides.
//
// It does not promise order between messages, nor exactly-once effects in systems outside the database transaction:
// those get at-least-once with a stable id and generation to deduplicate by ([Store.MayRun] and [Store.Finish] are for them).
// Of an untracked message, which is done when the broker has confirmed it, it promises nothing after that.
//
// # The life of a row
//
//	            Enqueue
//	               |
//	               v          confirm           effect committed
//	+-------> scheduled ----------------> published ----------------> done
//	|              |                        |    |
//	|  retry,      |  Cancel                |    | lost by the broker
//	|  reschedule  +------> canceled <------+    | (Reconciler)
//	|              |                             |
//	+--------------|-----------------------------+
//	               |  too many attempts or repairs     Requeue, Reschedule
//	               +------------------------> dead -----------------------> scheduled
//	                                             |  Cancel
//	                                             +--------> canceled
//
// available_at says when someone should next touch the row and state says who: the [Relay] for scheduled, the
// [Reconciler] for published, [Reconciler.Purge] for done and canceled, an operator for dead.
//
// # Time
//
// Only the database's clock counts. Times are DATETIME(6) in UTC, written and read as text and integers that no driver
// setting, session time zone or process time zone can shift.
//
// # Transactions
//
// Every call that takes a transaction refuses a handle that is not one. Run callers' transactions READ COMMITTED: under
// REPEATABLE READ a Cancel that finds nothing blocks other enqueues until it commits. Errors for which [IsRetryable]
// holds mean: roll back and run the whole transaction again.
package outbox
