package main

import "github.com/redis/go-redis/v9"

// newRedis is the client of a contender: its own database, and go-redis' own timeouts and retries.
func newRedis(e env) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: e.redis, DB: e.redisDB})
}
