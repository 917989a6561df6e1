package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/duebox/duebox/api/openapi"
)

// agreement is the OpenAPI document as a judge of requests and answers. It is safe for concurrent use.
type agreement struct {
	root    any
	schemas sync.Mutex
	all     *jsonschema.Compiler
}

// contract is the document that the server serves.
var contract = sync.OnceValues(func() (*agreement, error) {
	text, err := openapi.JSON()
	if err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	all := jsonschema.NewCompiler()
	all.DefaultDraft(jsonschema.Draft2020)
	all.AssertFormat()
	return &agreement{root: root, all: all}, all.AddResource(document, root)
})

const document = "file:///openapi.json"

// spot is a place in the document.
type spot struct {
	pointer string
	value   any
}

func (s spot) exists() bool { return s.value != nil }

// names are the fields at the spot, sorted.
func (s spot) names() (all []string) {
	o, _ := s.value.(map[string]any)
	for name := range o {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// at goes down from a spot by names and numbers, over references.
func (a *agreement) at(from spot, steps ...any) spot {
	for _, step := range steps {
		from = a.down(from, step)
	}
	return from
}

func (a *agreement) down(from spot, step any) spot {
	to := spot{pointer: fmt.Sprintf("%s/%v", from.pointer, strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(step)))}
	switch v := from.value.(type) {
	case map[string]any:
		to.value = v[fmt.Sprint(step)]
	case []any:
		if i, ok := step.(int); ok && i < len(v) {
			to.value = v[i]
		}
	}
	if o, ok := to.value.(map[string]any); ok {
		if ref, ok := o["$ref"].(string); ok {
			to = spot{value: a.root}
			for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
				to = a.down(to, name)
			}
		}
	}
	return to
}

// judge holds a value against the schema at a spot.
func (a *agreement) judge(schema spot, v any) error {
	a.schemas.Lock()
	s, err := a.all.Compile(document + "#" + escapePointer(schema.pointer))
	a.schemas.Unlock()
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func escapePointer(p string) string { return (&url.URL{Fragment: p}).EscapedFragment() }

// operation finds what the document says of a request, and the values of the path's parameters.
func (a *agreement) operation(method, escaped string) (item, op spot, values map[string]string) {
	paths := a.at(spot{value: a.root}, "paths")
	best := -1
	for _, template := range paths.names() {
		found, literal, ok := match(template, escaped)
		if ok && literal > best {
			best, item, values = literal, a.at(paths, template), found
		}
	}
	return item, a.at(item, strings.ToLower(method)), values
}

// match says whether a path is of a template, with how many literal segments, and what stands for its parameters.
func match(template, escaped string) (values map[string]string, literal int, ok bool) {
	want, got := strings.Split(template, "/"), strings.Split(escaped, "/")
	if len(want) != len(got) {
		return nil, 0, false
	}
	values = map[string]string{}
	for i, w := range want {
		name, isParameter := strings.CutPrefix(w, "{")
		value, err := url.PathUnescape(got[i])
		switch {
		case isParameter && got[i] != "" && err == nil:
			values[strings.TrimSuffix(name, "}")] = value
		case isParameter && got[i] != "": // badly escaped: refused, but of this route
			values[strings.TrimSuffix(name, "}")] = got[i]
		case w == got[i]:
			literal++
		default:
			return nil, 0, false
		}
	}
	return values, literal, true
}

// parameters holds the parameters of a request that was taken against the document.
func (a *agreement) parameters(item, op spot, r *http.Request, values map[string]string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	for _, owner := range []spot{item, op} {
		list := a.at(owner, "parameters")
		all, _ := list.value.([]any)
		for i := range all {
			p := a.at(list, i)
			o, _ := p.value.(map[string]any)
			name, _ := o["name"].(string)
			var given []string
			switch o["in"] {
			case "path":
				given = []string{values[name]}
			case "query":
				given = query[name]
				query.Del(name)
			case "header":
				given = r.Header.Values(name)
			}
			if len(given) == 0 && o["required"] == true {
				return fmt.Errorf("%s is required", name)
			}
			for _, text := range given {
				schema := a.at(p, "schema")
				if err := a.judge(schema, a.typed(schema, text)); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	if len(query) > 0 {
		return fmt.Errorf("parameters that are not documented: %v", query)
	}
	return nil
}

// typed reads a text as a number where the schema wants one.
func (a *agreement) typed(schema spot, text string) any {
	if a.at(schema, "type").value == "integer" {
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return json.Number(text)
		}
	}
	return text
}

// request holds a request that was taken against the document.
func (a *agreement) request(r *http.Request, body []byte) error {
	item, op, values := a.operation(r.Method, r.URL.EscapedPath())
	if err := a.parameters(item, op, r, values); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	want := a.at(op, "requestBody")
	if len(body) == 0 {
		if a.at(want, "required").value == true {
			return errors.New("request: a body is required")
		}
		return nil
	}
	if !want.exists() {
		return errors.New("request: it has a body")
	}
	return a.content(want, r.Header, body)
}

// answer holds an answer against the document.
func (a *agreement) answer(r *http.Request, status int, header http.Header, body []byte) error {
	item, op, _ := a.operation(r.Method, r.URL.EscapedPath())
	if !op.exists() {
		name := "NotFound"
		if item.exists() {
			name = "MethodNotAllowed"
		}
		problem := a.at(spot{value: a.root}, "components", "schemas", name)
		return a.body(problem, "application/problem+json", header, body)
	}
	want := a.at(op, "responses", status)
	if !want.exists() {
		return fmt.Errorf("status %d is not documented: %s", status, body)
	}
	documented := a.at(want, "headers")
	for _, name := range []string{"Location", "Retry-After", "WWW-Authenticate"} {
		if header.Get(name) != "" && !a.at(documented, name).exists() {
			return fmt.Errorf("%d: header %s is not documented", status, name)
		}
	}
	for _, name := range documented.names() {
		schema := a.at(documented, name, "schema")
		if err := a.judge(schema, a.typed(schema, header.Get(name))); err != nil {
			return fmt.Errorf("%d: header %s: %w", status, name, err)
		}
	}
	if !a.at(want, "content").exists() {
		if len(body) > 0 || header.Get("Content-Type") != "" {
			return fmt.Errorf("%d: a body is not documented: %s", status, body)
		}
		return nil
	}
	if err := a.content(want, header, body); err != nil {
		return fmt.Errorf("%d: %w", status, err)
	}
	return nil
}

// content holds a body against what the document has of its media type.
func (a *agreement) content(owner spot, header http.Header, body []byte) error {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return err
	}
	schema := a.at(owner, "content", media, "schema")
	if !schema.exists() {
		return fmt.Errorf("media type %s is not documented", media)
	}
	return a.body(schema, media, header, body)
}

func (a *agreement) body(schema spot, media string, header http.Header, body []byte) error {
	if got, _, _ := mime.ParseMediaType(header.Get("Content-Type")); got != media {
		return fmt.Errorf("the body is %s, not %s", got, media)
	}
	var v any = string(body)
	if strings.HasSuffix(media, "json") {
		var err error
		if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			return fmt.Errorf("%w: %s", err, body)
		}
	}
	if err := a.judge(schema, v); err != nil {
		return fmt.Errorf("%w: %.2000s", err, body)
	}
	return nil
}

// holding is a handler whose answers are held against the document, and so is what it takes.
type holding struct {
	http.Handler
	agreement *agreement
	report    func(r *http.Request, err error)
}

func (h holding) Unwrap() http.Handler { return h.Handler }

func (h holding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const statusGone = 499 // nobody reads it
	var sent, body bytes.Buffer
	inner := r.WithContext(r.Context())
	inner.Body = readCloser{io.TeeReader(r.Body, &sent), r.Body}
	seen := &recorded{ResponseWriter: w, body: &body, status: http.StatusOK}
	h.Handler.ServeHTTP(seen, inner)
	if seen.status == statusGone {
		return
	}
	if err := h.agreement.answer(r, seen.status, seen.Header(), body.Bytes()); err != nil {
		h.report(r, err)
	}
	if seen.status < http.StatusBadRequest {
		if err := h.agreement.request(r, sent.Bytes()); err != nil {
			h.report(r, fmt.Errorf("%w: %.2000s", err, sent.Bytes()))
		}
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// recorded remembers what is answered.
type recorded struct {
	http.ResponseWriter
	status int
	body   *bytes.Buffer
}

func (w *recorded) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorded) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

func (w *recorded) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *recorded) Unwrap() http.ResponseWriter { return w.ResponseWriter }
