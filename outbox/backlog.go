package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Backlog is how many messages are in a state, and since when the first of them should have been dealt with.
type Backlog struct {
	// Topics counts the messages of each topic. Those that come first (RelayConfig, ReconcileConfig) are counted, up to 1,000 of each of
	// the ledger's 16 shards.
	Topics map[string]int
	// More says that counting stopped somewhere, so that there may be more than that.
	More bool
	// Overdue is how long ago the earliest of those was due, or written if that was later, by the database's clock, however often it has been
	// tried or repaired since. Negative: that is still to come. 0 without messages, and of states that wait for no time.
	Overdue time.Duration
}

// backlogRows is how many rows of a shard Backlog looks at. It is what bounds its cost, however many there are.
const backlogRows = 1000

// Backlog counts the messages of a state, which must be Scheduled, Published or Dead. It reads up to 16,000 rows along an index, which
// is tens of milliseconds when they are in memory: call it a few times a minute.
func (s *Store) Backlog(ctx context.Context, state State) (Backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: due (state, shard, available_at), in each branch
	const branch = `(SELECT shard, topic, IF(available_at IS NULL, NULL, ` + waitsFrom + `) AS due FROM outbox_messages FORCE INDEX (due) WHERE state = ? AND shard = ? ORDER BY available_at LIMIT ?)`
	args := make([]any, 0, 3*shards)
	for shard := range shards {
		args = append(args, string(state), shard, backlogRows)
	}
	b := Backlog{Topics: map[string]int{}}
	var ofShard [shards]int
	first := true
	_, err := queryAll(ctx, s.sql, func(rows *sql.Rows, _ *struct{}) error {
		var (
			shard, n int
			topic    string
			late     sql.NullInt64
		)
		if err := rows.Scan(&shard, &topic, &n, &late); err != nil {
			return err
		}
		b.Topics[topic] += n
		ofShard[shard] += n
		b.More = b.More || ofShard[shard] >= backlogRows
		if overdue := time.Duration(late.Int64) * time.Microsecond; late.Valid && (first || overdue > b.Overdue) {
			b.Overdue, first = overdue, false
		}
		return nil
	}, `SELECT shard, topic, COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(due), UTC_TIMESTAMP(6))
		FROM (`+strings.TrimSuffix(strings.Repeat(branch+" UNION ALL ", shards), " UNION ALL ")+`) AS first_rows GROUP BY shard, topic`, args...)
	if err != nil {
		return Backlog{}, fmt.Errorf("count %s messages: %w", state, err)
	}
	return b, nil
}

// ClockOffset returns how far the database's clock is ahead of this process's, as it was last seen; false when it was not seen in the
// last minute. It is too small by no more than the time that an answer takes.
func (s *Store) ClockOffset() (time.Duration, bool) {
	local := time.Now()
	now, ok := s.clock.now(local)
	return now.Sub(local), ok
}
