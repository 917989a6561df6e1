package outbox

import "time"

// TakeQuery is the query by which a relay that holds every shard takes work.
func TakeQuery() (string, []any) {
	all := make([]int, shards)
	var from [shards]position
	for i := range all {
		all[i] = i
		from[i] = position{available: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), id: 100}
	}
	return takeQuery(all, span{from, 10 * time.Minute, 64})
}

// DelayQuery is the query by which a relay that holds every shard takes, at the database's time now, what is ahead by delay.
func DelayQuery(now time.Time, delay time.Duration) (string, []any) {
	all := make([]int, shards)
	var from [shards]position
	w := delayWindow(now, delay)
	for i := range all {
		all[i] = i
		from[i] = position{available: w.from}
	}
	return takeQuery(all, span{from, w.ahead, 64})
}

// ListQuery is the query by which a list of a state goes on after a row, in all shards.
func ListQuery(o *Operator, state State, f Filter) (string, []any) {
	return o.stateQuery(state, everyShard(), &f, place{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), ID: 100}, 50)
}
