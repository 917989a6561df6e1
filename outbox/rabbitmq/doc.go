// Package rabbitmq hands the messages of an outbox to RabbitMQ 3.10+ and brings them back when they fire.
//
// # Guarantees
//
//   - A [Publisher] gives a receipt without error only after the broker's confirm. A confirm that was lost with its
//     connection is outbox.ErrUnconfirmed, never a success and never a refusal.
//   - One message that the broker or the protocol cannot take does not take its neighbours down: what shared its
//     channel is tried alone, and only what ends a channel alone is outbox.ErrUnpublishable.
//   - A [Consumer] acknowledges a delivery only after its handler returned nil, on the channel that it came on.
//   - Every call to the broker ends: when its context does, or at its deadline, also on a socket that takes and gives
//     nothing. A broker that has said that it is blocked is not held to the deadline. Lost connections are made again for
//     ever, with pauses that grow to some seconds and are spread at random, and everything that must exist on the broker is
//     declared again each time.
//   - A broker that lost what it held (a restart, an empty disk, another node name, a deleted exchange or tier's queue, a disabled plugin) is
//     noticed at the next connection, before anything is published on it: the epoch is raised first, once for each loss
//     whatever the number of publishers ([Epochs]). A connection that lives on looks every 15 s, and makes again the
//     exchanges and the bindings between them that somebody has removed.
//
// It does not promise that a confirmed delayed message survives: the x-delayed-message exchange holds one copy. The
// ledger does, which is why the receipts carry the epoch.
//
// # On the broker
//
//	                       (delayed)                                      +--> <ns>.work.<topic>  quorum
//	Publisher --> <ns>.delay --------> <ns>.deliver ----- topic ----------+--> ...
//	          \                        ^       \
//	           +-- (due already) ------+        +-- no queue --> <ns>.unrouted
//	           +-- <ns>.tier. ... -----+
//
// <ns>.delay is of strategy [Plugin], the exchanges and queues <ns>.tier.<milliseconds>.<0-3>.<hash of the arguments> are of [Tiers].
//
// <ns>.epoch holds the one message that tells whether the broker is the one it was; <ns>.epoch.lock is there for moments, while
// a publisher puts it.
package rabbitmq
