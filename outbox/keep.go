package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What is kept of a delivery, in bytes, fits well into the smallest max_allowed_packet by default (16 MiB), escaped: one that
// cannot be kept would block its queue.
const (
	keptPayload = 1 << 20
	keptHeaders = 256 << 10
)

// Keep writes down a delivery that no handler can be given, so that it can be acknowledged without being lost. Of a payload
// over 1 MiB the beginning is kept, and headers over 256 KiB are left out; the detail says so. The stray may have any size.
func (s *Store) Keep(ctx context.Context, stray Stray) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if len(stray.Payload) > keptPayload {
		stray.Detail = fmt.Sprintf("%s (the payload's first %d of %d bytes)", stray.Detail, keptPayload, len(stray.Payload))
		stray.Payload = stray.Payload[:keptPayload]
	}
	if len(stray.Headers) > keptHeaders {
		stray.Detail = fmt.Sprintf("%s (without headers: %d bytes)", stray.Detail, len(stray.Headers))
		stray.Headers = nil
	}
	_, err := s.sql.ExecContext(ctx, `INSERT INTO outbox_unrouted
			(reason, detail, message_id, routing_key, headers, payload, kept_at)
		VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))`,
		[]byte(clip(stray.Reason)), cleanText(stray.Detail), cutBytes(stray.MessageID), cutBytes(stray.RoutingKey), stray.Headers, stray.Payload)
	if err != nil {
		return fmt.Errorf("keep %s delivery: %w", stray.Reason, err)
	}
	return nil
}

func (s *Store) keepDelivery(ctx context.Context, d Delivery, reason Outcome, detail string) error {
	headers, err := json.Marshal(map[string]any{
		"key": d.Key, "generation": d.Generation, "attempt": d.Attempt, "due": d.DueAt.UTC().Format(time.RFC3339Nano), "user": d.Headers,
	})
	if err != nil {
		return fmt.Errorf("encode headers: %w", err)
	}
	return s.Keep(ctx, Stray{
		Reason: string(reason), Detail: detail, MessageID: d.Store + "-" + strconv.FormatInt(d.ID, 10),
		RoutingKey: d.Topic, Headers: headers, Payload: d.Payload,
	})
}

// Unrouted takes a message that the broker could not route to any work queue: the delivery is kept, and the message is
// scheduled again after a pause that doubles with each repair, or dead after ten. With a nil error the delivery can be
// acknowledged.
func (s *Store) Unrouted(ctx context.Context, d Delivery) error {
	ledger, err := s.StoreID(ctx)
	if err != nil {
		return err
	}
	if d.Store != ledger {
		return s.keepDelivery(ctx, d, OutcomeForeign, "belongs to store "+clip(d.Store))
	}
	// Kept first: if we die before the row is written, the delivery comes again and is kept twice.
	if err := s.keepDelivery(ctx, d, "unrouted", "no queue was bound for the topic"); err != nil {
		return err
	}
	return s.repairOne(ctx, d, "no queue was bound for the topic")
}

// maxRepairs is how often a message may be repaired without a delivery before it is dead.
const maxRepairs = 10

// repairOne schedules an unrouted row again, or makes it dead after maxRepairs. A row that has moved on, is not due, or waits for
// its next publish already (this is a copy, then) stays as it is.
func (s *Store) repairOne(ctx context.Context, d Delivery, why string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	const unrouted = `due_at <= UTC_TIMESTAMP(6)
		AND (state = 'published' OR state = 'scheduled' AND available_at <= UTC_TIMESTAMP(6))`
	// index: primary
	died, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET
			state = 'dead', available_at = NULL, revision = revision + 1, last_error = ?, failed_at = UTC_TIMESTAMP(6)
		WHERE id = ? AND generation = ? AND repairs >= ? AND `+unrouted, why, d.ID, d.Generation, maxRepairs)
	if err != nil {
		return fmt.Errorf("give up message %d: %w", d.ID, err)
	}
	s.cfg.Observer.died("unrouted", int(died))
	if died > 0 {
		s.cfg.Observer.attempted(d, OutcomeDead, why)
		return nil
	}
	// repairs is set last: MySQL assigns from left to right.
	repaired, err := execCount(ctx, s.sql, `UPDATE outbox_messages SET
			state = 'scheduled', available_at = UTC_TIMESTAMP(6) + INTERVAL POW(2, repairs) SECOND,
			revision = revision + 1, last_error = ?, failed_at = UTC_TIMESTAMP(6), repairs = repairs + 1
		WHERE id = ? AND generation = ? AND `+unrouted, why, d.ID, d.Generation)
	if err != nil {
		return fmt.Errorf("schedule message %d again: %w", d.ID, err)
	}
	s.cfg.Observer.repaired("unrouted", int(repaired))
	if repaired > 0 {
		s.cfg.Observer.attempted(d, OutcomeRetry, why)
	}
	return nil
}

// errorText makes an error fit last_error: valid UTF-8, at most 1000 characters. An error that panics when asked, such as a nil
// pointer in an interface, must not take down what only notes it.
func errorText(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = cleanText(fmt.Sprintf("%T, whose text panics: %v", err, p))
		}
	}()
	return cleanText(err.Error())
}

func cleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	const most = 1000
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i]
		}
	}
	return s
}

func cutBytes(s string) []byte { return []byte(s[:min(len(s), 255)]) }
