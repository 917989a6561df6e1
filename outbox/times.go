package outbox

import "time"

// Times cross the driver as text and integers, never as time.Time: no loc, parseTime or time_zone can shift those.

const sqlTime = "2006-01-02 15:04:05.000000"

// dueText writes t for a DATETIME(6) column, rounded up to the microsecond: never early.
func dueText(t time.Time) string {
	if floor := t.Truncate(time.Microsecond); !floor.Equal(t) {
		t = floor.Add(time.Microsecond)
	}
	return t.UTC().Format(sqlTime)
}

// micros1970 is SQL for a DATETIME(6) expression as microseconds since 1970 UTC.
func micros1970(expr string) string {
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', " + expr + ")"
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// fromNullable is fromMicros for a column that may be NULL, read as -1: the zero time.
func fromNullable(us int64) time.Time {
	if us < 0 {
		return time.Time{}
	}
	return fromMicros(us)
}
