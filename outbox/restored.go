package outbox

import (
	"context"
	"errors"
	"fmt"
)

// ErrInUse says that a relay has shown signs of life within the last minute.
var ErrInUse = errors.New("outbox: the ledger is in use: stop all workers, and wait a minute if they were killed")

// relayAlive is SQL for whether a relay has shown signs of life lately.
const relayAlive = `EXISTS (SELECT 1 FROM outbox_relays WHERE seen_at BETWEEN UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE AND UTC_TIMESTAMP(6))`

// Unused returns nil if nobody seems to use the ledger, or there is none, and ErrInUse if a relay has been alive within the last minute.
// Processes that only enqueue or answer consumers are not seen.
func (s *Store) Unused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var used bool
	err := s.sql.QueryRowContext(ctx, "SELECT "+relayAlive).Scan(&used)
	switch {
	case mysqlNumber(err) == erNoSuchTable:
		return nil
	case err != nil:
		return fmt.Errorf("look for relays: %w", err)
	case used:
		return ErrInUse
	}
	return nil
}

// Restored is for a ledger that has been set back: its database was restored from a backup, or a replica that lacked the last commits has
// taken over, or it is a copy. The ledger gets another id, which it returns, and the broker's epoch is raised as if the broker were empty.
//
// Ids of messages will be given again that deliveries which are under way, and consumers elsewhere, know already. With the new id those deliveries are
// foreign: they are kept and not run, and nothing is taken for their duplicate. What is published by the ledger is scheduled again at once, for the
// broker may have delivered it in the time that is gone.
//
// No process may use the ledger meanwhile, for each remembers its id: ErrInUse if a relay does. A process that only enqueues or
// answers consumers is not seen, and must be stopped all the same. Calling it again does no harm.
func (s *Store) Restored(ctx context.Context) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// empty_epoch is set first: MySQL assigns from left to right.
	n, err := execCount(ctx, s.sql, `UPDATE outbox_meta SET
			store_id = UUID(), empty_epoch = broker_epoch + 1, broker_epoch = broker_epoch + 1, raised_at = UTC_TIMESTAMP(6)
		WHERE id = 1 AND NOT `+relayAlive)
	switch {
	case err != nil:
		return "", fmt.Errorf("give the ledger another id: %w", err)
	case n == 0:
		return "", ErrInUse
	}
	s.mu.Lock()
	s.id = ""
	s.mu.Unlock()
	return s.StoreID(ctx)
}
