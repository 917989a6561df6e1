package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Kept is a delivery that no handler could be given, as Store.Keep has written it down.
type Kept struct {
	ID           int64
	Reason       string
	Detail       string
	MessageID    string // of the delivery, as the broker had it
	RoutingKey   string
	Headers      []byte // JSON, its first 16 KiB
	Payload      []byte // its first 4 KiB
	PayloadBytes int    // of what was kept
	KeptAt       time.Time
}

const (
	shownKeptHeaders = 16 << 10
	shownKeptPayload = 4 << 10
)

// Kept reads deliveries that were kept, with ids below before, all if that is 0, the newest first and at most limit of them.
func (o *Operator) Kept(ctx context.Context, before int64, limit int) ([]Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// index: primary
	kept, err := queryAll(ctx, o.store.sql, func(rows *sql.Rows, k *Kept) error {
		var at int64
		err := rows.Scan(&k.ID, &k.Reason, &k.Detail, &k.MessageID, &k.RoutingKey, &k.Headers, &k.Payload, &k.PayloadBytes, &at)
		k.KeptAt = fromMicros(at)
		return err
	}, `SELECT id, reason, COALESCE(detail, ''), COALESCE(message_id, ''), COALESCE(routing_key, ''), LEFT(headers, ?), LEFT(payload, ?),
			COALESCE(LENGTH(payload), 0), `+micros1970("kept_at")+`
		FROM outbox_unrouted WHERE id < ? ORDER BY id DESC LIMIT ?`, shownKeptHeaders, shownKeptPayload, beforeOrAll(before), limit)
	if err != nil {
		return nil, fmt.Errorf("read kept deliveries: %w", err)
	}
	return kept, nil
}
