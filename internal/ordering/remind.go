package ordering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Remind is the effect of a message of model.TopicRemind: it notes in the order that its buyer was reminded, which whoever tells buyers
// of it reads there. An order that is not pending any more, or past its due time because everything is late, stays as it is. As for Expire
// every run is written to the table effects, and errors mean the same.
func (s *Service) Remind(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
	tx = tx.WithContext(ctx)
	nos, err := begin(tx, d)
	if err != nil {
		return fmt.Errorf("remind of order %s: %w", d.Key, err)
	}
	no := nos[0]
	reminded, err := change(tx, `UPDATE orders SET reminded_at = UTC_TIMESTAMP(6), version = version + 1
		WHERE no = ? AND status = 'pending' AND due_at > UTC_TIMESTAMP(6)`, no)
	if err == nil && !reminded {
		_, err = load(tx, no)
	}
	if err != nil {
		return fmt.Errorf("remind of order %s: %w", no, err)
	}
	if reminded {
		outbox.AfterCommit(tx, func() { s.happened(Reminded, 1) })
	}
	return nil
}

// remindAt is when the buyer of an order is reminded; false if not at all.
func (s *Service) remindAt(due, now time.Time) (time.Time, bool) {
	at := ceilMicros(due.Add(-s.cfg.RemindBefore))
	return at, s.cfg.RemindBefore > 0 && at.After(now)
}

// moveReminder gives the order a reminder for its new due time, or none. It takes back also what an earlier setting has left behind: the order
// stays pending, and its buyer would be reminded at the wrong time.
func (s *Service) moveReminder(ctx context.Context, tx *gorm.DB, no string, due, now time.Time) error {
	at, ok := s.remindAt(due, now)
	if !ok {
		return s.takeBack(ctx, tx, model.TopicRemind, no)
	}
	_, err := s.reschedule(ctx, tx, model.TopicRemind, no, at)
	return err
}

// reschedule moves the order's message of a topic. If it has none, it is taking effect right now, and what locks the order afterwards
// finds out; or it has taken effect or is missing, and is made here, before the order is locked: made is its id, else 0.
func (s *Service) reschedule(ctx context.Context, tx *gorm.DB, topic, no string, due time.Time) (made int64, err error) {
	err = s.store.Reschedule(ctx, tx, topic, no, due)
	if !errors.Is(err, outbox.ErrNoMessage) {
		return 0, err
	}
	made, err = s.enqueue(ctx, tx, topic, no, due)
	if errors.Is(err, outbox.ErrDuplicateKey) {
		err = errAgain
	}
	return made, err
}
