package ordering

import (
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// Config tunes a Service. The zero value is usable.
type Config struct {
	// Normal, Flash and Presale are how long an order of that kind may stay unpaid. Each order keeps the due time that it was
	// placed with, whatever becomes of the setting. Defaults: 30 min, 10 min, 24 h.
	Normal, Flash, Presale time.Duration
	// RemindBefore is how long before its due time an order's buyer is reminded. An order that is due sooner has no reminder.
	// Zero: none is made.
	RemindBefore time.Duration
	// Retention is how long Forget keeps what is known of effects. Default 7 days.
	Retention time.Duration
	// Deadline bounds one call, its repeats after deadlocks included. Default 10 s.
	Deadline time.Duration
	// Happened is told what has become of n orders, after the commit. It must return at once and be safe for concurrent use. Nil: nobody.
	Happened func(what Outcome, n int64)
}

const (
	// KeyLife is how long an idempotency key is remembered.
	KeyLife    = 24 * time.Hour
	maxTimeout = 10 * 365 * 24 * time.Hour // keeps due times within what a DATETIME holds
)

// Service runs the transactions on orders. It is safe for concurrent use.
type Service struct {
	db    *gorm.DB
	store *outbox.Store
	cfg   Config
}

// New returns the service on db, whose sessions must run READ COMMITTED, which must hold the tables of Migrations, and
// whose ledger of messages is store. It does no I/O.
func New(db *gorm.DB, store *outbox.Store, cfg Config) (*Service, error) {
	if db == nil || store == nil {
		return nil, errors.New("ordering: a database handle and a store are required")
	}
	for _, setting := range []struct {
		name     string
		value    *time.Duration
		fallback time.Duration
	}{
		{"Normal", &cfg.Normal, 30 * time.Minute},
		{"Flash", &cfg.Flash, 10 * time.Minute},
		{"Presale", &cfg.Presale, 24 * time.Hour},
		{"RemindBefore", &cfg.RemindBefore, 0},
		{"Retention", &cfg.Retention, 7 * 24 * time.Hour},
		{"Deadline", &cfg.Deadline, 10 * time.Second},
	} {
		if *setting.value == 0 {
			*setting.value = setting.fallback
		}
		if *setting.value < 0 || *setting.value > maxTimeout {
			return nil, fmt.Errorf("ordering: %s is %v, not in 0 to %v", setting.name, *setting.value, maxTimeout)
		}
	}
	return &Service{db: db, store: store, cfg: cfg}, nil
}

func (s *Service) timeout(k model.Kind) time.Duration {
	switch k {
	case model.Flash:
		return s.cfg.Flash
	case model.Presale:
		return s.cfg.Presale
	case model.Normal:
	}
	return s.cfg.Normal
}
