package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
)

// object is a JSON object of the document.
type object map[string]any

// document resolves references within itself.
type document struct{ root object }

func parse() (document, error) {
	data, err := JSON()
	if err != nil {
		return document{}, err
	}
	var d document
	if err := json.Unmarshal(data, &d.root); err != nil {
		return document{}, fmt.Errorf("openapi: %w", err)
	}
	return d, nil
}

// in is the object of that name in o, with a reference replaced by what it leads to; empty if there is none.
func (d document) in(o object, name string) object { return d.follow(o[name]) }

// list is the objects of the list of that name in o, with references replaced.
func (d document) list(o object, name string) (all []object) {
	values, _ := o[name].([]any)
	for _, v := range values {
		all = append(all, d.follow(v))
	}
	return all
}

func (d document) follow(v any) object {
	o, _ := v.(map[string]any)
	for {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		var at any = map[string]any(d.root)
		for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			parent, _ := at.(map[string]any)
			at = parent[step]
		}
		o, _ = at.(map[string]any)
	}
}

// text is the string of that name in o, empty if there is none.
func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}
