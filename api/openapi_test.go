package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// undocumented are routes that no path of OpenAPI can describe, and why they need none.
var undocumented = map[string]string{
	"GET /ui":             "leads to the page",
	"GET /ui/":            "the operator's page, for browsers",
	"GET /ui/:file":       "a file of the page",
	"GET /ui/views/:file": "a file of the page",
}

func TestDocument_HasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	c, err := contract()
	require.NoError(t, err)
	var documented, served []string
	paths := c.at(spot{value: c.root}, "paths")
	for _, path := range paths.names() {
		for _, method := range c.at(paths, path).names() {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" "+path)
			}
		}
	}
	parameter := regexp.MustCompile(`:(\w+)`)
	for _, r := range newServer(t, api.Config{}, stub{}, quiet{}, stub{}, always).Routes() {
		if route := r.Method + " " + r.Path; undocumented[route] == "" {
			served = append(served, r.Method+" "+parameter.ReplaceAllString(r.Path, "{$1}"))
		}
	}
	require.ElementsMatch(t, served, documented)
}

// Every server of these tests is made by newServer, so that nothing is answered unseen.
func TestDocument_JudgesEveryServerOfTheseTests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	made := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if n := len(regexp.MustCompile(`(?m)^\s*[a-z]\w*, \w+ :?= api\.New\(`).FindAll(text, -1)); n > 0 {
			made[file] = n
		}
	}
	require.Equal(t, map[string]int{"shop_test.go": 1}, made)
}

func TestDocument_IsWhole(t *testing.T) {
	t.Parallel()
	c, err := contract()
	require.NoError(t, err)
	ids := map[any]bool{}
	paths := c.at(spot{value: c.root}, "paths")
	for _, path := range paths.names() {
		item := c.at(paths, path)
		for _, method := range item.names() {
			if method == "parameters" {
				continue
			}
			op, at := c.at(item, method), method+" "+path
			id := c.at(op, "operationId").value
			require.NotNil(t, id, at)
			require.NotContains(t, ids, id, at)
			ids[id] = true
			require.NotEmpty(t, c.at(op, "summary").value, at)
			declared := c.examples(t, at, item, op)
			for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				require.Contains(t, declared, "path "+name[1], at)
			}
			require.True(t, c.at(op, "responses", 500).exists(), at)
			asks, _ := c.at(op, "security").value.([]any)
			require.NotNil(t, c.at(op, "security").value, at)
			require.Equal(t, len(asks) > 0, c.at(op, "responses", 401).exists(), at)
			if body := c.at(op, "requestBody"); body.exists() {
				for _, status := range []int{408, 413, 415} {
					require.True(t, c.at(op, "responses", status).exists(), "%s: %d", at, status)
				}
				if example := c.at(body, "content", "application/json", "example"); example.exists() {
					require.NoError(t, c.judge(c.at(body, "content", "application/json", "schema"), example.value), at)
				}
			}
			for _, status := range c.at(op, "responses").names() {
				content := c.at(op, "responses", status, "content")
				require.NotEmpty(t, c.at(op, "responses", status, "description").value, at)
				for _, media := range content.names() {
					require.Error(t, c.judge(c.at(content, media, "schema"), 1), "%s: %s: a schema that takes anything", at, status)
				}
			}
		}
	}
}

// examples holds the examples of an operation's parameters against their schemas, and returns "in name" of each.
func (a *agreement) examples(t *testing.T, at string, owners ...spot) (declared []string) {
	t.Helper()
	for _, owner := range owners {
		list := a.at(owner, "parameters")
		all, _ := list.value.([]any)
		for i := range all {
			p := a.at(list, i)
			declared = append(declared, fmt.Sprintf("%v %v", a.at(p, "in").value, a.at(p, "name").value))
			if example := a.at(p, "example"); example.exists() {
				require.NoError(t, a.judge(a.at(p, "schema"), example.value), at)
			}
		}
	}
	return declared
}

// What the judge must find: each of these answers is wrong in one point.
func TestDocument_RefusesWrongAnswers(t *testing.T) {
	t.Parallel()
	const (
		product = `{"sku":"cup","name":"Cup","available":1,"reserved":0,"sold":0}`
		pending = `{"no":"1","kind":"normal","user":"ann","status":"pending","close_reason":null,"items":[{"sku":"cup","quantity":1,"price":1}],` +
			`"total":1,"refunded":0,"due_at":"2026-11-30T18:00:00.000000Z","created_at":"2026-11-30T18:00:00.000000Z","reminded_at":null,"paid_at":null,"closed_at":null}`
		gone = `{"type":"urn:duebox:problem:no-such-order","title":"No such order","status":404,"detail":"there is no such order"}`
		busy = `{"type":"urn:duebox:problem:unavailable","title":"Busy","status":503,"detail":"later"}`
	)
	jsonType, problemType := []string{"Content-Type: application/json"}, []string{"Content-Type: application/problem+json"}
	without := func(old, replacement string) string {
		require.Contains(t, pending, old)
		return strings.Replace(pending, old, replacement, 1)
	}
	for name, test := range map[string]struct {
		route, sent, answer string
		status              int
		header              []string
		finds               string // empty: the answer is right
	}{
		"right":               {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: pending},
		"right problem":       {route: "GET /v1/orders/1", status: 404, header: problemType, answer: gone},
		"field missing":       {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`"refunded":0,`, ""), finds: "refunded"},
		"field too many":      {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`"no"`, `"id":1,"no"`), finds: "id"},
		"number for an id":    {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`"no":"1"`, `"no":1`), finds: "/no"},
		"time in seconds":     {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`00.000000Z`, `00Z`), finds: "/due_at"},
		"no time at all":      {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`2026-11-30T18`, `2026-11-31T18`), finds: "/due_at"},
		"unknown status":      {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`pending`, `open`), finds: "/status"},
		"paid without a time": {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`pending`, `paid`), finds: "paid"},
		"fraction":            {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: without(`"total":1`, `"total":1.5`), finds: "/total"},
		"of another route":    {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: product, finds: "sku"},
		"not JSON":            {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: "no", finds: "invalid"},
		"half of it":          {route: "GET /v1/orders/1", status: 200, header: jsonType, answer: pending[:100], finds: "EOF"},
		"another media type":  {route: "GET /v1/orders/1", status: 200, header: []string{"Content-Type: text/plain"}, answer: pending, finds: "media type"},
		"no media type":       {route: "GET /v1/orders/1", status: 200, answer: pending, finds: "media type"},
		"another status":      {route: "GET /v1/orders/1", status: 201, header: jsonType, answer: pending, finds: "status 201"},
		"undocumented header": {route: "GET /v1/orders/1", status: 200, header: append([]string{"Location: /v1/x"}, jsonType...), answer: pending, finds: "Location"},
		"problem as JSON":     {route: "GET /v1/orders/1", status: 404, header: jsonType, answer: gone, finds: "media type"},
		"another problem":     {route: "GET /v1/orders/1", status: 404, header: problemType, answer: strings.Replace(gone, "order", "run", 1), finds: "/type"},
		"another number":      {route: "GET /v1/orders/1", status: 404, header: problemType, answer: strings.Replace(gone, "404", "409", 1), finds: "/status"},
		"no Retry-After":      {route: "GET /v1/orders/1", status: 503, header: problemType, answer: busy, finds: "Retry-After"},
		"late Retry-After":    {route: "GET /v1/orders/1", status: 503, header: append([]string{"Retry-After: 0"}, problemType...), answer: busy, finds: "Retry-After"},
		"right Retry-After":   {route: "GET /v1/orders/1", status: 503, header: append([]string{"Retry-After: 2"}, problemType...), answer: busy},
		"body without any":    {route: "DELETE /v1/messages/t/1", status: 204, header: jsonType, answer: "{}", finds: "body"},
		"nothing":             {route: "DELETE /v1/messages/t/1", status: 204},
		"no such route":       {route: "GET /v1/secret", status: 200, header: jsonType, answer: product, finds: "application/json"},
		"no such method":      {route: "PUT /v1/orders/1", status: 200, header: jsonType, answer: pending, finds: "application/json"},

		"request with more":        {route: "PUT /v1/products/cup", sent: `{"name":"Cup","stock":1,"size":1}`, status: 200, header: jsonType, answer: product, finds: "size"},
		"request with text":        {route: "PUT /v1/products/cup", sent: `{"name":"Cup","stock":"1"}`, status: 200, header: jsonType, answer: product, finds: "/stock"},
		"request without a body":   {route: "PUT /v1/products/cup", status: 200, header: jsonType, answer: product, finds: "required"},
		"request with a query":     {route: "PUT /v1/products/cup?dry=1", sent: `{"name":"Cup","stock":1}`, status: 200, header: jsonType, answer: product, finds: "dry"},
		"request with a bad path":  {route: "GET /v1/products/a%2Fb", status: 200, header: jsonType, answer: product, finds: "sku"},
		"request with a flag of 0": {route: "POST /v1/admin/reconcile", sent: `{"audit":0}`, status: 202, header: append([]string{"Location: /v1/x"}, jsonType...), answer: `{"id":"1"}`, finds: "/audit"},
		"right request":            {route: "PUT /v1/products/cup", sent: `{"name":"Cup","stock":1}`, status: 200, header: jsonType, answer: product},
	} {
		c, err := contract()
		require.NoError(t, err)
		var found []string
		h := holding{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			require.NoError(t, err)
			for _, line := range test.header {
				name, value, _ := strings.Cut(line, ": ")
				w.Header().Set(name, value)
			}
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.answer))
		}), c, func(_ *http.Request, err error) { found = append(found, err.Error()) }}
		method, path, _ := strings.Cut(test.route, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(test.sent))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if test.finds == "" {
			require.Empty(t, found, name)
			continue
		}
		require.NotEmpty(t, found, name)
		require.Contains(t, strings.Join(found, "\n"), test.finds, name)
	}
}

func TestDocument_IsServedWithAPageThatNeedsNothingElse(t *testing.T) {
	t.Parallel()
	s := newServer(t, api.Config{APIToken: "a", AdminToken: "b"}, stub{}, quiet{}, stub{}, always)
	get := func(path, contentType string) string {
		a := do(t, s.Handler(), "GET", path, "")
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, contentType, a.header.Get("Content-Type"))
		require.NotContains(t, a.header.Get("Content-Security-Policy"), "unsafe")
		return string(a.body)
	}
	var parsed struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(get("/openapi.json", "application/json")), &parsed))
	require.Equal(t, "3.1.1", parsed.OpenAPI)
	require.Contains(t, get("/openapi.yaml", "application/yaml"), "\nopenapi: 3.1.1\n")
	require.Contains(t, get("/openapi.css", "text/css; charset=utf-8"), "prefers-color-scheme")
	page := get("/openapi", "text/html; charset=utf-8")
	for path, item := range parsed.Paths {
		for method, op := range item {
			if o, ok := op.(map[string]any); ok {
				require.Contains(t, page, fmt.Sprintf(`<section id="%s"`, o["operationId"]))
				require.Contains(t, page, "<code>"+strings.ToUpper(method)+" "+path+"</code>")
			}
		}
	}
	for _, refused := range []string{"<script", "style=", "onclick", "http://", "https://", "%!", "&lt;nil&gt;"} {
		require.NotContains(t, page, refused)
	}
	linked := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, linked)
	for _, link := range linked {
		require.Contains(t, page, `id="`+link[1]+`"`, "a link that leads nowhere")
	}
}
