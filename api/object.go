package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duebox/duebox/model"
)

// object is a JSON object of an input. Its accessors note what is missing or of another type, with the field's path, in a list
// that all objects of one body share; end returns it.
type object struct {
	path   string // empty, or such as items[2]
	fields map[string]any
	faults *model.Faults
}

func (o *object) at(name string) string {
	if o.path == "" {
		return shown(name)
	}
	return o.path + "." + shown(name)
}

// take removes the field, so that what is left at the end is unknown.
func (o *object) take(name string) (any, bool) {
	v, found := o.fields[name]
	if !found {
		o.faults.Add(o.at(name), "is required")
		return nil, false
	}
	delete(o.fields, name)
	return v, true
}

// text is a required string.
func (o *object) text(name string) string {
	v, found := o.take(name)
	s, ok := v.(string)
	if found && !ok {
		o.faults.Add(o.at(name), "must be a string")
	}
	return s
}

// optional takes the field if it is there.
func (o *object) optional(name string) (any, bool) {
	v, found := o.fields[name]
	delete(o.fields, name)
	return v, found
}

// optionalText is an optional string, empty if it is left out.
func (o *object) optionalText(name string) (s string, found bool) {
	v, found := o.optional(name)
	s, ok := v.(string)
	if found && !ok {
		o.faults.Add(o.at(name), "must be a string")
	}
	return s, found
}

// instant is a required time, written as RFC 3339.
func (o *object) instant(name string) time.Time {
	v, found := o.take(name)
	return o.parseInstant(name, v, found)
}

// optionalInstant is an optional time, zero if it is left out.
func (o *object) optionalInstant(name string) (t time.Time) {
	if v, found := o.optional(name); found {
		t = o.parseInstant(name, v, found)
	}
	return t
}

func (o *object) parseInstant(name string, v any, found bool) time.Time {
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339, s)
	// Parse would also take an hour of one digit, and a comma.
	if found && (err != nil || s[len("2006-01-02T15")] != ':' || strings.Contains(s, ",")) {
		o.faults.Add(o.at(name), "must be a time as RFC 3339 writes it, such as 2026-11-30T18:00:00Z")
	}
	return t
}

// delay is an optional time to wait, zero if it is left out.
func (o *object) delay(name string) (d time.Duration, found bool) {
	s, found := o.optionalText(name)
	if s == "" && !found {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		o.faults.Add(o.at(name), "must be a duration of zero or more, such as 90s, 30m or 1h30m")
	}
	return d, true
}

// texts is an optional object whose fields are all strings.
func (o *object) texts(name string) map[string]string {
	v, found := o.optional(name)
	if !found {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		o.faults.Add(o.at(name), "must be an object of strings")
		return nil
	}
	inner := &object{path: o.at(name), fields: fields, faults: o.faults}
	all := make(map[string]string, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		all[name] = inner.text(name)
	}
	return all
}

// flag is an optional boolean, false if it is left out.
func (o *object) flag(name string) bool { return o.flagOr(name, false) }

// flagOr is an optional boolean.
func (o *object) flagOr(name string, otherwise bool) bool {
	v, found := o.optional(name)
	if !found {
		return otherwise
	}
	b, ok := v.(bool)
	if !ok {
		o.faults.Add(o.at(name), "must be true or false")
	}
	return b
}

// integer is a required number without fraction or exponent.
func (o *object) integer(name string) int64 {
	v, found := o.take(name)
	if !found {
		return 0
	}
	number, ok := v.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	switch {
	case !ok || strings.ContainsAny(number.String(), ".eE"):
		o.faults.Add(o.at(name), "must be an integer")
	case err != nil:
		o.faults.Add(o.at(name), "must be an integer of 64 bits")
	}
	return n
}

// objects is a required list of objects.
func (o *object) objects(name string) []*object {
	v, found := o.take(name)
	if !found {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		o.faults.Add(o.at(name), "must be a list")
		return nil
	}
	var all []*object
	for i, v := range list {
		path := fmt.Sprintf("%s[%d]", o.at(name), i)
		fields, ok := v.(map[string]any)
		if !ok {
			o.faults.Add(path, "must be an object")
			continue
		}
		all = append(all, &object{path: path, fields: fields, faults: o.faults})
	}
	return all
}

// close notes the fields that nobody asked for.
func (o *object) close() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		o.faults.Add(o.at(name), "is not a field of this request")
	}
}

// end closes the object and returns everything noted so far, in all objects of the body, as a *model.InvalidError.
func (o *object) end() error {
	o.close()
	return o.faults.Err()
}
