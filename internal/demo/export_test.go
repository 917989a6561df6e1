package demo

import (
	"context"
	"database/sql"
	"io"
	"time"

	"github.com/duebox/duebox/client"
)

// What the package's tests reach besides Run.

type (
	Planned  = planned
	Item     = client.Item
	Findings = findings
)

var (
	DelayAt  = delayAt
	Mix      = mix
	LimitsOf = limitsOf
	Check    = check
	Quantile = quantile
	Takes    = takes
)

func ParseOrders(r io.Reader, n int, timeout time.Duration) ([]planned, error) {
	return parseOrders(r, n, limitsOf(timeout))
}

func (l limits) Compress(kind string, d time.Duration) (time.Duration, bool) {
	return l.compress(kind, d)
}

func (p planned) PayAfter() time.Duration { return p.payAfter }
func (p planned) Late() bool              { return p.late }
func (p planned) Items() []client.Item    { return p.items }
func (p planned) Name() string            { return p.name }

// Unpaid is an order of a kind that nobody pays.
func Unpaid(kind string) planned { return planned{kind: kind, payAfter: -1} }

// Paid is a normal order that is paid after a while.
func Paid(after time.Duration) planned { return planned{kind: "normal", payAfter: after} }

func (f *findings) Result() Result     { return newResult(*f) }
func (r Result) Wrong() []string       { return r.wrong() }
func (f *findings) Problems() []string { return f.problems }

func (f *findings) CheckLate(ctx context.Context, db *sql.DB, late []string) error {
	return f.checkLate(ctx, db, late)
}

// Disturb makes the run call f once, when half of the orders are placed.
func (o *Options) Disturb(f func(context.Context, *sql.DB) error) { o.disturb = f }
