package openapi

import (
	"fmt"
	"strings"
)

// kind says of what type the values of a schema are, in words of a line.
func (d document) kind(schema any) kind {
	s, ok := schema.(map[string]any)
	if !ok {
		return kind{Words: "any value"}
	}
	if ref, ok := s["$ref"].(string); ok {
		return kind{Link: ref[strings.LastIndexByte(ref, '/')+1:]}
	}
	if value, ok := s["const"]; ok {
		return kind{Words: pretty(value)}
	}
	if values, ok := s["enum"].([]any); ok {
		return kind{Words: joined(values, pretty)}
	}
	for _, choice := range []string{"anyOf", "oneOf"} {
		if all, ok := s[choice].([]any); ok && s["type"] == nil {
			return d.choice(all)
		}
	}
	if s["type"] == "array" {
		inner := d.kind(s["items"])
		return kind{"list of " + inner.Words, inner.Link}
	}
	if values, ok := s["additionalProperties"].(map[string]any); ok {
		inner := d.kind(values)
		return kind{"object whose values are " + inner.Words, inner.Link}
	}
	return kind{Words: described(s)}
}

// choice is what a value is that may be one of several; at most one of them is a schema with a name.
func (d document) choice(all []any) (k kind) {
	var words []string
	for _, one := range all {
		inner := d.kind(one)
		if inner.Link != "" {
			k.Link = inner.Link
			continue
		}
		words = append(words, inner.Words)
	}
	k.Words = strings.Join(words, " or ")
	if k.Link != "" {
		k.Words += " or "
	}
	return k
}

// described names the type and its limits.
func described(s object) string {
	text := "any value"
	switch t := s["type"].(type) {
	case string:
		text = t
	case []any:
		text = joined(t, func(v any) string { return fmt.Sprint(v) })
	}
	if s["format"] != nil {
		text += fmt.Sprintf(" (%v)", s["format"])
	}
	for _, limits := range [][3]string{{"minimum", "maximum", ""}, {"minLength", "maxLength", " characters"}} {
		low, high := s[limits[0]], s[limits[1]]
		switch {
		case low != nil && high != nil:
			text += fmt.Sprintf(", %s to %s%s", pretty(low), pretty(high), limits[2])
		case low != nil:
			text += fmt.Sprintf(", at least %s%s", pretty(low), limits[2])
		case high != nil:
			text += fmt.Sprintf(", at most %s%s", pretty(high), limits[2])
		}
	}
	if s["pattern"] != nil {
		text += fmt.Sprintf(", %v", s["pattern"])
	}
	if s["default"] != nil {
		text += ", default " + pretty(s["default"])
	}
	return text
}

func joined(values []any, write func(any) string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = write(v)
	}
	return strings.Join(texts, " or ")
}
