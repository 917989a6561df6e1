package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/duebox/duebox/model"
)

// maxDepth is how deep a body may be nested; ours have two levels.
const maxDepth = 8

// parseObject reads data as one JSON object, more strictly than encoding/json: names are compared exactly and may not be repeated,
// and a string that is not UTF-8, or is escaped into half a surrogate pair, is refused where encoding/json would
// silently replace characters.
//
// The fields of the object that raw names are left as they are written, as json.RawMessage.
func parseObject(data []byte, raw ...string) (*object, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, model.Invalid("body", "is not JSON: "+shown(err.Error()))
	}
	p := parser{data: data, raw: raw, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	v, err := p.value("", 0)
	if err != nil {
		return nil, err
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, model.Invalid("body", "must be a JSON object")
	}
	if err := p.faults.Err(); err != nil {
		return nil, err
	}
	return &object{fields: fields, faults: &p.faults}, nil
}

// parser reads valid JSON into strings, numbers, booleans, nil, lists and maps.
type parser struct {
	data   []byte
	raw    []string
	dec    *json.Decoder
	faults model.Faults
}

// token returns the next token and the bytes that it was read from.
func (p *parser) token() (json.Token, []byte, error) {
	from := p.dec.InputOffset()
	t, err := p.dec.Token()
	if err != nil {
		return nil, nil, fmt.Errorf("read token of valid JSON: %w", err)
	}
	return t, p.data[from:p.dec.InputOffset()], nil
}

func (p *parser) value(path string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, model.Invalid(named(path), "is nested too deeply")
	}
	t, raw, err := p.token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		return p.object(path, depth)
	case json.Delim('['):
		return p.list(path, depth)
	}
	if s, ok := t.(string); ok {
		p.checkText(raw, path)
		return s, nil
	}
	return t, nil
}

func (p *parser) object(path string, depth int) (any, error) {
	fields := map[string]any{}
	for p.dec.More() {
		t, raw, err := p.token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		at := (&object{path: path}).at(name)
		p.checkText(raw, at)
		v, err := p.field(name, at, depth)
		if err != nil {
			return nil, err
		}
		if _, repeated := fields[name]; repeated {
			p.faults.Add(at, "is given twice")
		}
		fields[name] = v
	}
	_, _, err := p.token() // the closing brace
	return fields, err
}

// field reads a field's value, of an object at depth.
func (p *parser) field(name, at string, depth int) (any, error) {
	if depth > 0 || !slices.Contains(p.raw, name) {
		return p.value(at, depth+1)
	}
	var raw json.RawMessage
	if err := p.dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("read a value of valid JSON: %w", err)
	}
	if !utf8.Valid(raw) {
		p.faults.Add(at, "is not valid UTF-8")
	}
	return raw, nil
}

func (p *parser) list(path string, depth int) (any, error) {
	list := []any{}
	for p.dec.More() {
		v, err := p.value(fmt.Sprintf("%s[%d]", path, len(list)), depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, _, err := p.token() // the closing bracket
	return list, err
}

func (p *parser) checkText(raw []byte, path string) {
	switch {
	case !utf8.Valid(raw):
		p.faults.Add(named(path), "is not valid UTF-8")
	case halfPair(raw):
		p.faults.Add(named(path), "holds half of a surrogate pair")
	}
}

// halfPair reports whether a JSON string that is written as raw has a \u escape of a surrogate without its partner.
func halfPair(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++ // what follows a backslash is an escape, never another backslash's beginning
		if raw[i] != 'u' {
			continue
		}
		switch c := escaped(raw[i-1:]); {
		case c >= 0xDC00 && c <= 0xDFFF:
			return true
		case c >= 0xD800 && c <= 0xDBFF:
			if low := escaped(raw[i+5:]); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
		i += 4
	}
	return false
}

// escaped is the value of the \u escape that b begins with, 0 if it begins with none.
func escaped(b []byte) uint64 {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	c, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return c
}

func named(path string) string {
	if path == "" {
		return "body"
	}
	return path
}
