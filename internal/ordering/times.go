package ordering

import "time"

// Times cross the driver as text and integers, never as time.Time: no loc, parseTime or time_zone can shift those.

// sqlTime writes t for a DATETIME(6) column; t must be whole microseconds, or the rest is cut off.
func sqlTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000") }

// micros is SQL for a DATETIME(6) expression as microseconds since 1970 UTC.
func micros(expr string) string {
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', " + expr + ")"
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromNullable is the zero time for NULL.
func fromNullable(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return fromMicros(*us)
}

// dueAfter adds limit to a time of the database and rounds up to the microsecond, as the outbox does: never early.
func dueAfter(now time.Time, limit time.Duration) time.Time {
	return now.Add((limit + time.Microsecond - 1).Truncate(time.Microsecond))
}

// ceilMicros rounds up to the microsecond, as the outbox does.
func ceilMicros(t time.Time) time.Time {
	if floor := t.Truncate(time.Microsecond); !floor.Equal(t) {
		t = floor.Add(time.Microsecond)
	}
	return t.UTC()
}
