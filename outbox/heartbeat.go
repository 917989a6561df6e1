package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Heartbeat is what a relay's process says of itself each time it says that it lives: what is seen of the broker from there.
type Heartbeat struct {
	Strategy  string // how messages are delayed
	Why       string // that strategy
	Epoch     int64  // the broker's life
	Connected bool   // for publishing
	Blocked   bool   // the broker takes no messages for now
	Reason    string // why it is not connected, or blocked
	// Since is when Connected and Blocked came to be as they are; zero: not known. Told on the process's clock, read on the database's.
	Since time.Time
	// Queues are the work queues that the process consumes, as it has last seen them.
	Queues []WorkQueue
	// Published and Finished are how many publications were confirmed and how many effects committed since the process started.
	Published, Finished int64
}

// WorkQueue is how a topic's work queue was last seen.
type WorkQueue struct {
	Topic     string `json:"topic"`
	Ready     int    `json:"ready"`     // messages that no consumer has been given
	Consumers int    `json:"consumers"` // of all processes
}

// Peer is a relay that has lately said that it lives.
type Peer struct {
	Owner  string
	SeenAt time.Time
	// Silent is for how long it has said nothing, by the database's clock. Who has its shards takes a third of RelayConfig.Lease between
	// two signs of life, and loses them after the whole of it.
	Silent time.Duration
	Heartbeat
}

// Alive says whether the relay has lately said something, as all do who have the shards of RelayConfig.Lease by default.
func (p *Peer) Alive() bool { return p.Silent < aliveFor }

// aliveFor is longer than a lease by default, so that who is slow for a moment is not called dead.
const aliveFor = 15 * time.Second

// maxPeers bounds what Peers reads.
const maxPeers = 200

// Peers returns the relays that have said in the last hour that they live, in the order of their names, 200 at most. One that has ended as
// it should is not among them any more.
func (s *Store) Peers(ctx context.Context) ([]Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: primary; there are few
	peers, err := queryAll(ctx, s.sql, func(rows *sql.Rows, p *Peer) error {
		var (
			seen, silent, since int64
			queues              []byte
		)
		err := rows.Scan(&p.Owner, &seen, &silent, &p.Strategy, &p.Why, &p.Epoch, &p.Connected, &p.Blocked, &p.Reason, &since,
			&queues, &p.Published, &p.Finished)
		if err != nil {
			return err
		}
		p.SeenAt, p.Silent = fromMicros(seen), max(0, time.Duration(silent)*time.Microsecond)
		if since >= 0 {
			p.Since = fromMicros(since)
		}
		if len(queues) == 0 {
			return nil
		}
		if err := json.Unmarshal(queues, &p.Queues); err != nil {
			return fmt.Errorf("queues of %s: %w", clip(p.Owner), err)
		}
		return nil
	}, `SELECT owner, `+micros1970("seen_at")+`, TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6)), strategy, why, epoch, connected,
			blocked, reason, COALESCE(`+micros1970("since")+`, -1), queues, published, finished
		FROM outbox_relays WHERE seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY owner LIMIT ?`,
		relayForgotten.Microseconds(), maxPeers)
	if err != nil {
		return nil, fmt.Errorf("read what relays say of themselves: %w", err)
	}
	return peers, nil
}

// beat says that the relay lives, and how it is. A since that differs from the one before by no more than statements do stays, so that it
// does not move to and fro.
func (l *leases) beat(ctx context.Context) error {
	var h Heartbeat
	if l.heartbeat != nil {
		h = l.heartbeat()
	}
	queues, err := json.Marshal(h.Queues)
	if err != nil {
		return fmt.Errorf("encode what the relay says of itself: %w", err)
	}
	var age any // NULL: not known
	if !h.Since.IsZero() {
		age = max(0, time.Since(h.Since).Microseconds())
	}
	said := []any{
		cut(h.Strategy, 16), cut(h.Why, 255), h.Epoch, h.Connected, h.Blocked, cut(h.Reason, 1000), queues, h.Published, h.Finished,
	}
	args := append([]any{[]byte(l.owner), age}, said...)
	args = append(args, age, age)
	args = append(args, said...)
	// index: primary
	_, err = l.store.sql.ExecContext(ctx, `INSERT INTO outbox_relays
			(owner, seen_at, since, strategy, why, epoch, connected, blocked, reason, queues, published, finished)
		VALUES (?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(6),
			since = IF(ABS(TIMESTAMPDIFF(MICROSECOND, since, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)) < 1000000,
				since, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND),
			strategy = ?, why = ?, epoch = ?, connected = ?, blocked = ?, reason = ?, queues = ?, published = ?, finished = ?`, args...)
	if err != nil {
		return fmt.Errorf("tell that the relay lives: %w", err)
	}
	return nil
}

// cut is s without what a column of so many characters has no room for, and without what is not UTF-8.
func cut(s string, most int) string {
	runes := []rune(s)
	return string(runes[:min(len(runes), most)])
}
