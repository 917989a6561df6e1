package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// sortedSet keeps order numbers in a sorted set by their due times, and asks it each second for what is over. Whoever removes a number, and nobody
// else, closes the order.
type sortedSet struct {
	plainly
	env

	client *redis.Client
}

const (
	zset     = "orders"
	zsetPage = 500
)

func newSortedSet(e env) *sortedSet { return &sortedSet{env: e, client: newRedis(e)} }

func (s *sortedSet) Placed(ctx context.Context, o order) error {
	return s.client.ZAdd(ctx, zset, redis.Z{Score: float64(time.Now().Add(o.Timeout).UnixMilli()), Member: o.No}).Err()
}

func (s *sortedSet) Work(ctx context.Context) error {
	timer := time.NewTicker(time.Second)
	defer timer.Stop()
	for {
		n, err := s.page(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "poll", "error", err)
		}
		if n == zsetPage && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

func (s *sortedSet) page(ctx context.Context) (int, error) {
	over, err := s.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: zset, ByScore: true, Start: "-inf", Stop: strconv.FormatInt(time.Now().UnixMilli(), 10), Count: zsetPage,
	}).Result()
	if err != nil {
		return 0, err
	}
	for _, no := range over {
		removed, err := s.client.ZRem(ctx, zset, no).Result()
		if err != nil {
			return 0, fmt.Errorf("remove %s: %w", no, err)
		}
		if removed == 0 {
			continue
		}
		if err := s.closeOne(ctx, no); err != nil {
			return 0, err
		}
	}
	return len(over), nil
}
