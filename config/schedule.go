package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// cronField is one of the five fields of a schedule: its numbers, and names for them from low on.
type cronField struct {
	low, high int
	names     []string
}

func cronFields() []cronField {
	return []cronField{
		{0, 59, nil},
		{0, 23, nil},
		{1, 31, nil},
		{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

const scheduleRule = "five cron fields (minute hour day month weekday), @every with a duration from 1s, or @hourly, @daily, @weekly, @monthly, @yearly"

// isSchedule accepts nothing that robfig/cron, which runs schedules, would refuse: five fields, or a descriptor.
func isSchedule(s string) bool {
	if every, ok := strings.CutPrefix(s, "@every "); ok {
		d, err := time.ParseDuration(every)
		return err == nil && d >= time.Second // shorter ones would be taken for a second
	}
	if strings.HasPrefix(s, "@") {
		return slices.Contains([]string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}, s)
	}
	values, fields := strings.Fields(s), cronFields()
	if len(values) != len(fields) {
		return false
	}
	for i, field := range fields {
		for part := range strings.SplitSeq(values[i], ",") {
			if !field.accepts(part) {
				return false
			}
		}
	}
	return true
}

// accepts judges one of *, n, a-b, and each of them with /step.
func (f cronField) accepts(part string) bool {
	span, step, stepped := strings.Cut(part, "/")
	if n, ok := number(step); stepped && (!ok || n < 1 || n > f.high) {
		return false
	}
	if span == "*" || span == "?" {
		return true
	}
	first, last, ranged := strings.Cut(span, "-")
	from, ok := f.value(first)
	if !ok || !ranged {
		return ok
	}
	to, ok := f.value(last)
	return ok && from <= to
}

func (f cronField) value(s string) (int, bool) {
	if i := slices.Index(f.names, strings.ToLower(s)); i >= 0 {
		return f.low + i, true
	}
	n, ok := number(s)
	return n, ok && f.low <= n && n <= f.high
}

// number reads digits only: no sign.
func number(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil
}
