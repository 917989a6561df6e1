package main

import (
	"context"
	"hash/fnv"
	"time"
)

// bad is a contender that loses, repeats, asks again and is early on purpose, for one order in ten each, by its number: what the comparison counts is checked
// with it.
type bad struct {
	plainly
	env
}

const (
	badLost = iota
	badTwice
	badAgain
	badEarly
	badKinds = 10
)

// badness is what is done wrong to an order.
func badness(no string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(no))
	return int(h.Sum32() % badKinds)
}

func broken() entry {
	return entry{name: "broken", title: "broken on purpose", workers: 1, open: func(e env) contender { return &bad{env: e} }, files: []string{"broken.go"}}
}

func (b *bad) Work(ctx context.Context) error {
	return b.every(ctx, 50*time.Millisecond, b.round)
}

func (b *bad) round(ctx context.Context) (more bool, err error) {
	const ahead = `SELECT no FROM orders WHERE status = 'pending' AND due_at <= UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`
	for kind, micros := range map[bool]int{false: 0, true: 500_000} {
		due, err := texts(ctx, b.db, ahead, micros)
		if err != nil {
			return false, err
		}
		for _, no := range due {
			switch how := badness(no); {
			case how == badLost, kind != (how == badEarly):
				continue
			case how == badTwice:
				if _, err := b.db.ExecContext(ctx, `INSERT INTO journal (order_no, what, at) VALUES (?, 'closed', UTC_TIMESTAMP(6))`, no); err != nil {
					return false, err
				}
			}
			if err := b.closeOne(ctx, no); err != nil {
				return false, err
			}
			if badness(no) == badAgain {
				if err := b.closeOne(ctx, no); err != nil {
					return false, err
				}
			}
		}
	}
	return false, nil
}
