package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// expiry gives each order a key that lives as long as the order may be unpaid, and closes the order when Redis tells that the key has expired.
type expiry struct {
	plainly
	env

	client *redis.Client
}

const expiryPrefix = "order:"

func newExpiry(e env) *expiry { return &expiry{env: e, client: newRedis(e)} }

func (x *expiry) Placed(ctx context.Context, o order) error {
	return x.client.Set(ctx, expiryPrefix+o.No, "", o.Timeout).Err()
}

// Work listens with eight at a time. The client subscribes anew when its connection ends.
func (x *expiry) Work(ctx context.Context) error {
	events := x.client.Subscribe(ctx, fmt.Sprintf("__keyevent@%d__:expired", x.redisDB))
	defer func() { _ = events.Close() }()
	return each(ctx, 8, events.Channel(redis.WithChannelSize(10_000), redis.WithChannelHealthCheckInterval(time.Second)), func(m *redis.Message) {
		if err := x.closeOne(ctx, strings.TrimPrefix(m.Payload, expiryPrefix)); err != nil && ctx.Err() == nil {
			x.log.WarnContext(ctx, "expired", "error", errors.Join(err, x.client.Set(ctx, m.Payload, "", time.Second).Err()))
		}
	})
}
