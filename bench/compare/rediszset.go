package main

import (
	"context"
	"errors"
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
	return s.every(ctx, time.Second, s.page)
}

func (s *sortedSet) page(ctx context.Context) (more bool, err error) {
	over, err := s.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: zset, ByScore: true, Start: "-inf", Stop: strconv.FormatInt(time.Now().UnixMilli(), 10), Count: zsetPage,
	}).Result()
	if err != nil {
		return false, err
	}
	for _, no := range over {
		removed, err := s.client.ZRem(ctx, zset, no).Result()
		if err != nil {
			return false, fmt.Errorf("remove %s: %w", no, err)
		}
		if removed == 0 {
			continue
		}
		if err := s.closeOne(ctx, no); err != nil {
			return false, errors.Join(err, s.client.ZAdd(ctx, zset, redis.Z{Score: float64(time.Now().Add(time.Second).UnixMilli()), Member: no}).Err())
		}
	}
	return len(over) == zsetPage, nil
}
