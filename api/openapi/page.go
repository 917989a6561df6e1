package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageHTML string

// What the page shows.
type (
	page struct {
		Title, Summary string
		Description    []string // paragraphs
		Groups         []group
		Schemas        []schema
	}
	group struct {
		Name, Description string
		Operations        []operation
	}
	operation struct {
		ID, Method, Path, Summary, Token string
		Description                      []string
		Parameters                       []field
		Body                             *body
		Answers                          []answer
	}
	body struct {
		Required bool
		Type     kind
		Example  string
	}
	answer struct {
		Status, Description string
		Headers             []field
		Type                kind
		Problems            []string
	}
	// A field is a parameter, a header, or a field of an object.
	field struct {
		Name, In, Description, Example string
		Required                       bool
		Type                           kind
	}
	schema struct {
		Name, Description string
		Type              kind
		Fields            []field
	}
	// A kind says of what type a value is: the name of a schema to link to, after some words or none.
	kind struct{ Words, Link string }
)

// Page is the document for people, in HTML.
func Page() ([]byte, error) {
	d, err := parse()
	if err != nil {
		return nil, err
	}
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d.page()); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return b.Bytes(), nil
}

func (d document) page() page {
	about := d.in(d.root, "info")
	p := page{Title: about.text("title"), Summary: about.text("summary"), Description: paragraphs(about)}
	for _, tag := range d.list(d.root, "tags") {
		p.Groups = append(p.Groups, group{tag.text("name"), tag.text("description"), d.operations(tag.text("name"))})
	}
	schemas := d.in(d.in(d.root, "components"), "schemas")
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if s := d.in(schemas, name); s["allOf"] == nil || s["type"] != nil { // else a problem, which its answer tells
			p.Schemas = append(p.Schemas, schema{name, s.text("description"), d.kind(map[string]any(s)), d.fields(s)})
		}
	}
	return p
}

// operations are those of a tag, by path and then in the order get, put, post, patch, delete.
func (d document) operations(tag string) (all []operation) {
	paths := d.in(d.root, "paths")
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := d.in(paths, path)
		for _, method := range []string{"get", "put", "post", "patch", "delete"} {
			o := d.in(item, method)
			tags, _ := o["tags"].([]any)
			if !slices.Contains(tags, any(tag)) {
				continue
			}
			op := operation{
				ID: o.text("operationId"), Method: strings.ToUpper(method), Path: path, Summary: o.text("summary"), Description: paragraphs(o), Token: d.token(o),
			}
			for _, parameter := range append(d.list(item, "parameters"), d.list(o, "parameters")...) {
				op.Parameters = append(op.Parameters, d.field(parameter.text("name"), parameter, parameter["schema"], parameter["required"] == true))
			}
			if o["requestBody"] != nil {
				op.Body = d.body(d.in(o, "requestBody"))
			}
			op.Answers = d.answers(o)
			all = append(all, op)
		}
	}
	return all
}

// token is the description of the first scheme that the operation asks for; empty if it is open.
func (d document) token(o object) string {
	for _, asked := range d.list(o, "security") {
		for name := range asked {
			return d.in(d.in(d.in(d.root, "components"), "securitySchemes"), name).text("description")
		}
	}
	return ""
}

func (d document) body(o object) *body {
	for _, content := range d.in(o, "content") {
		media := d.follow(content)
		b := &body{Required: o["required"] == true, Type: d.kind(media["schema"])}
		if media["example"] != nil {
			b.Example = pretty(media["example"])
		}
		return b
	}
	return nil
}

func (d document) answers(o object) (all []answer) {
	responses := d.in(o, "responses")
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		r := d.in(responses, status)
		a := answer{Status: status, Description: r.text("description")}
		headers := d.in(r, "headers")
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			h := d.in(headers, name)
			a.Headers = append(a.Headers, d.field(name, h, h["schema"], true))
		}
		for media, content := range d.in(r, "content") {
			s := d.follow(content)["schema"]
			if media == "application/problem+json" {
				a.Problems = names(d.in(d.in(d.follow(s), "properties"), "type"))
			} else {
				a.Type = d.kind(s)
			}
		}
		all = append(all, a)
	}
	return all
}

// names are the types that a problem document may have.
func names(o object) (all []string) {
	values, _ := o["enum"].([]any)
	if one := o["const"]; one != nil {
		values = []any{one}
	}
	for _, v := range values {
		all = append(all, strings.TrimPrefix(fmt.Sprint(v), "urn:duebox:problem:"))
	}
	return all
}

func (d document) fields(s object) (all []field) {
	properties, required := d.in(s, "properties"), s["required"]
	listed, _ := required.([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value, _ := properties[name].(map[string]any)
		all = append(all, d.field(name, value, value, slices.Contains(listed, any(name))))
	}
	return all
}

func (d document) field(name string, o object, schema any, required bool) field {
	f := field{Name: name, In: o.text("in"), Description: o.text("description"), Required: required, Type: d.kind(schema)}
	if o["example"] != nil {
		f.Example = fmt.Sprint(o["example"])
	}
	return f
}

func paragraphs(o object) []string {
	if o.text("description") == "" {
		return nil
	}
	return strings.Split(o.text("description"), "\n\n")
}

func pretty(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // it has been read from JSON
	}
	return string(text)
}
