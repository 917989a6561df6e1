package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// TestInput_RefusedNamesTheFieldAndWritesNothing: what is refused leaves every table as it was, byte for byte.
func TestInput_RefusedNamesTheFieldAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "100")
	no := s.place()
	before := s.contents(t.Context())

	item := func(fields string) string { return `{"kind":"normal","user":"ann","items":[{` + fields + `}]}` }
	good := order("cup")
	soon := time.Now().UTC().Add(time.Hour).Format(time.RFC3339)
	tests := []struct {
		name   string
		method string
		path   string
		body   string
		header []string
		status int
		fields []string // all that must be named; nil: the problem is not about a field
	}{
		{name: "empty", body: " ", fields: []string{"body"}},
		{name: "no body", header: []string{"Content-Type: application/json"}, fields: []string{"body"}},
		{name: "not JSON", body: "kind=normal", fields: []string{"body"}},
		{name: "half of it", body: good[:len(good)-1], fields: []string{"body"}},
		{name: "trailing bytes", body: good + "x", fields: []string{"body"}},
		{name: "trailing object", body: good + good, fields: []string{"body"}},
		{name: "NUL after it", body: good + "\x00", fields: []string{"body"}},
		{name: "byte order mark", body: "\ufeff" + good, fields: []string{"body"}},
		{name: "a list", body: "[" + good + "]", fields: []string{"body"}},
		{name: "null", body: "null", fields: []string{"body"}},
		{name: "a comment", body: "/**/" + good, fields: []string{"body"}},
		{name: "single quotes", body: strings.ReplaceAll(good, `"`, `'`), fields: []string{"body"}},
		{name: "unknown field", body: strings.Replace(good, `{`, `{"coupon":1,`, 1), fields: []string{"coupon"}},
		{name: "unknown field in an item", body: item(`"sku":"cup","quantity":1,"price":1,"size":"L"`), fields: []string{"items[0].size"}},
		{name: "other case", body: strings.Replace(good, `"kind"`, `"Kind"`, 1), fields: []string{"kind", "Kind"}},
		{name: "a field twice", body: strings.Replace(good, `{`, `{"user":"bob",`, 1), fields: []string{"user"}},
		{name: "an escaped field twice", body: strings.Replace(good, `{`, `{"\u0075ser":"bob",`, 1), fields: []string{"user"}},
		{name: "an item's field twice", body: item(`"sku":"cup","quantity":1,"price":1,"price":2`), fields: []string{"items[0].price"}},
		{name: "nothing in it", body: "{}", fields: []string{"kind", "user", "items"}},
		{name: "nulls", body: `{"kind":null,"user":null,"items":null}`, fields: []string{"kind", "user", "items"}},
		{name: "null item", body: `{"kind":"normal","user":"ann","items":[null]}`, fields: []string{"items[0]"}},
		{name: "no items", body: `{"kind":"normal","user":"ann","items":[]}`, fields: []string{"items"}},
		{name: "unknown kind", body: strings.Replace(good, "normal", "NORMAL", 1), fields: []string{"kind"}},
		{name: "user is a number", body: strings.Replace(good, `"ann"`, `12345678901234567890`, 1), fields: []string{"user"}},
		{name: "user is empty", body: strings.Replace(good, `"ann"`, `""`, 1), fields: []string{"user"}},
		{name: "user is long", body: strings.Replace(good, "ann", strings.Repeat("u", 65), 1), fields: []string{"user"}},
		{name: "user with a NUL", body: strings.Replace(good, "ann", `a\u0000n`, 1), fields: []string{"user"}},
		{name: "user with a raw control character", body: strings.Replace(good, "ann", "a\x01n", 1), fields: []string{"body"}},
		{name: "user with a blank", body: strings.Replace(good, "ann", "ann ", 1), fields: []string{"user"}},
		{name: "sku is a number", body: item(`"sku":9007199254740993,"quantity":1,"price":1`), fields: []string{"items[0].sku"}},
		{name: "unknown sku", body: order("mug"), fields: []string{"items[0].sku"}},
		{name: "a sku twice", body: `{"kind":"normal","user":"ann","items":[{"sku":"cup","quantity":1,"price":1},{"sku":"cup","quantity":1,"price":1}]}`, fields: []string{"items[1].sku"}},
		{name: "quantity zero", body: item(`"sku":"cup","quantity":0,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity below zero", body: item(`"sku":"cup","quantity":-1,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity absurd", body: item(`"sku":"cup","quantity":1000000000,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity of 65 bits", body: item(`"sku":"cup","quantity":18446744073709551617,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity with a fraction", body: item(`"sku":"cup","quantity":1.0,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity with an exponent", body: item(`"sku":"cup","quantity":1e0,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity as text", body: item(`"sku":"cup","quantity":"1","price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity true", body: item(`"sku":"cup","quantity":true,"price":1`), fields: []string{"items[0].quantity"}},
		{name: "quantity NaN", body: item(`"sku":"cup","quantity":NaN,"price":1`), fields: []string{"body"}},
		{name: "price below zero", body: item(`"sku":"cup","quantity":1,"price":-1`), fields: []string{"items[0].price"}},
		{name: "price absurd", body: item(`"sku":"cup","quantity":1,"price":9223372036854775807`), fields: []string{"items[0].price"}},
		{name: "price missing", body: item(`"sku":"cup","quantity":1`), fields: []string{"items[0].price"}},
		{name: "invalid UTF-8", body: strings.Replace(good, "ann", "a\xffn", 1), fields: []string{"user"}},
		{name: "invalid UTF-8 in a name", body: strings.Replace(good, `"user"`, "\"us\xffer\"", 1), fields: []string{"us\ufffder"}},
		{name: "an encoded surrogate", body: strings.Replace(good, "ann", "\xed\xa0\x80", 1), fields: []string{"user"}},
		{name: "half a surrogate pair", body: strings.Replace(good, "ann", `\ud83d`, 1), fields: []string{"user"}},
		{name: "the other half", body: strings.Replace(good, "ann", `\\\udE00`, 1), fields: []string{"user"}},
		{name: "two first halves", body: strings.Replace(good, "ann", `\ud83d\ud83d`, 1), fields: []string{"user"}},
		{name: "nested deeply", body: strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), fields: []string{strings.Repeat("a.", 8) + "a"}},
		{name: "nested very deeply", body: strings.Repeat("[", 20000) + strings.Repeat("]", 20000), fields: []string{"body"}},
		{name: "hundred and one items", body: `{"kind":"normal","user":"ann","items":[` + strings.Repeat(`{"sku":"cup","quantity":1,"price":1},`, 100) + `{"sku":"cup","quantity":1,"price":1}]}`, fields: []string{"items"}},

		{name: "too large", body: good + strings.Repeat(" ", 64<<10), status: http.StatusRequestEntityTooLarge},
		{name: "text/plain", body: good, header: []string{"Content-Type: text/plain"}, status: http.StatusUnsupportedMediaType},
		{name: "a form", body: good, header: []string{"Content-Type: application/x-www-form-urlencoded"}, status: http.StatusUnsupportedMediaType},
		{name: "no content type", body: good, header: []string{"Content-Type: "}, status: http.StatusUnsupportedMediaType},
		{name: "another charset", body: good, header: []string{"Content-Type: application/json; charset=latin1"}, status: http.StatusUnsupportedMediaType},
		{name: "compressed", body: good, header: []string{"Content-Encoding: gzip"}, status: http.StatusUnsupportedMediaType},
		{name: "a broken content type", body: good, header: []string{"Content-Type: application/json; ="}, status: http.StatusUnsupportedMediaType},

		{name: "a long key", body: good, header: []string{"Idempotency-Key: " + strings.Repeat("k", 129)}, fields: []string{"Idempotency-Key"}},
		{name: "a key that is not ASCII", body: good, header: []string{"Idempotency-Key: kä"}, fields: []string{"Idempotency-Key"}},
		{name: "two keys", body: good, header: []string{"Idempotency-Key: a", "Idempotency-Key: b"}, fields: []string{"Idempotency-Key"}},
		{name: "a query on a POST", path: "/v1/orders?dry=1", body: good, fields: []string{"dry"}},

		{name: "bad order number", method: "GET", path: "/v1/orders/a%20b", fields: []string{"no"}},
		{name: "slash in the number", method: "GET", path: "/v1/orders/a%2Fb", fields: []string{"no"}},
		{name: "plus in the number", method: "GET", path: "/v1/orders/a+b", fields: []string{"no"}},
		{name: "long number", method: "GET", path: "/v1/orders/" + strings.Repeat("9", 65), fields: []string{"no"}},
		{name: "NUL in the number", method: "GET", path: "/v1/orders/a%00", fields: []string{"no"}},
		{name: "pay a bad number", path: "/v1/orders/%C3%A4/pay", body: `{"payment_id":"p","amount":500}`, fields: []string{"no"}},
		{name: "cancel a bad number", path: "/v1/orders/%22/cancel", fields: []string{"no"}},
		{name: "unknown parameter", method: "GET", path: "/v1/orders?page=2&user=ann", fields: []string{"page"}},
		{name: "repeated parameter", method: "GET", path: "/v1/orders?user=ann&user=bob", fields: []string{"user"}},
		{name: "bad parameters", method: "GET", path: "/v1/orders?user=a%20b&status=open&limit=0&after=%00", fields: []string{"user", "status", "after", "limit"}},
		{name: "limit is text", method: "GET", path: "/v1/orders?limit=ten", fields: []string{"limit"}},
		{name: "limit too large", method: "GET", path: "/v1/orders?limit=101", fields: []string{"limit"}},
		{name: "limit of 70 bits", method: "GET", path: "/v1/orders?limit=999999999999999999999", fields: []string{"limit"}},
		{name: "query does not parse", method: "GET", path: "/v1/orders?user=%zz", fields: []string{"query"}},
		{name: "semicolons", method: "GET", path: "/v1/orders?user=a;status=paid", fields: []string{"query"}},

		{name: "payment id is a number", path: "/v1/orders/" + no + "/pay", body: `{"payment_id":1,"amount":500}`, fields: []string{"payment_id"}},
		{name: "payment id missing", path: "/v1/orders/" + no + "/pay", body: `{"amount":500}`, fields: []string{"payment_id"}},
		{name: "amount missing", path: "/v1/orders/" + no + "/pay", body: `{"payment_id":"p"}`, fields: []string{"amount"}},
		{name: "amount null", path: "/v1/orders/" + no + "/pay", body: `{"payment_id":"p","amount":null}`, fields: []string{"amount"}},
		{name: "amount below zero", path: "/v1/orders/" + no + "/pay", body: `{"payment_id":"p","amount":-500}`, fields: []string{"amount"}},
		{name: "amount in euro", path: "/v1/orders/" + no + "/pay", body: `{"payment_id":"p","amount":5.00}`, fields: []string{"amount"}},
		{name: "amount wrong", path: "/v1/orders/" + no + "/pay", body: `{"payment_id":"p","amount":499}`, status: http.StatusUnprocessableEntity},
		{name: "cancel with input", path: "/v1/orders/" + no + "/cancel", body: `{"reason":"x"}`, fields: []string{"reason"}},
		{name: "cancel with nonsense", path: "/v1/orders/" + no + "/cancel", body: `x`, fields: []string{"body"}},
		{name: "cancel with a form", path: "/v1/orders/" + no + "/cancel", body: `a=b`, header: []string{"Content-Type: text/plain"}, status: http.StatusUnsupportedMediaType},

		{name: "due time missing", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{}`, fields: []string{"due_at"}},
		{name: "due time null", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":null}`, fields: []string{"due_at"}},
		{name: "due time as a number", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":1795000000}`, fields: []string{"due_at"}},
		{name: "due time empty", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":""}`, fields: []string{"due_at"}},
		{name: "due time without a zone", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"2099-01-01T00:00:00"}`, fields: []string{"due_at"}},
		{name: "due time with a comma", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"` + soon[:19] + `,5Z"}`, fields: []string{"due_at"}},
		{name: "due time with an hour of one digit", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"2099-01-01T1:00:00Z"}`, fields: []string{"due_at"}},
		{name: "due time with a blank", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"` + strings.Replace(soon, "T", " ", 1) + `"}`, fields: []string{"due_at"}},
		{name: "due time on the 30th of February", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"2099-02-30T00:00:00Z"}`, fields: []string{"due_at"}},
		{name: "due time in the past", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"2020-01-01T00:00:00Z"}`, fields: []string{"due_at"}},
		{name: "due time too far", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"9999-12-31T23:59:59.999999999Z"}`, fields: []string{"due_at"}},
		{name: "due time in the year 0", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"0000-01-01T00:00:00Z"}`, fields: []string{"due_at"}},
		{name: "due time and more", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"` + soon + `","status":"paid"}`, fields: []string{"status"}},
		{name: "due time as text", method: "PATCH", path: "/v1/orders/" + no + "/due", body: `{"due_at":"` + soon + `"}`, header: []string{"Content-Type: text/plain"}, status: http.StatusUnsupportedMediaType},
		{name: "due time of a bad number", method: "PATCH", path: "/v1/orders/a%20b/due", body: `{"due_at":"` + soon + `"}`, fields: []string{"no"}},

		{name: "run with text for a flag", path: "/v1/admin/reconcile", body: `{"audit":"true"}`, fields: []string{"audit"}},
		{name: "run with a number for a flag", path: "/v1/admin/reconcile", body: `{"audit":true,"dry_run":1}`, fields: []string{"dry_run"}},
		{name: "run with null for a flag", path: "/v1/admin/reconcile", body: `{"audit":null}`, fields: []string{"audit"}},
		{name: "run with more", path: "/v1/admin/reconcile", body: `{"audit":true,"rearm":true}`, fields: []string{"rearm"}},
		{name: "run with a list", path: "/v1/admin/reconcile", body: `[]`, fields: []string{"body"}},
		{name: "run with a form", path: "/v1/admin/reconcile", body: `audit=true`, header: []string{"Content-Type: application/x-www-form-urlencoded"}, status: http.StatusUnsupportedMediaType},
		{name: "run with a query", path: "/v1/admin/reconcile?audit=true", fields: []string{"audit"}},
		{name: "run zero", method: "GET", path: "/v1/admin/reconcile/0", fields: []string{"id"}},
		{name: "run below zero", method: "GET", path: "/v1/admin/reconcile/-1", fields: []string{"id"}},
		{name: "run with a zero in front", method: "GET", path: "/v1/admin/reconcile/01", fields: []string{"id"}},
		{name: "run by name", method: "GET", path: "/v1/admin/reconcile/last", fields: []string{"id"}},
		{name: "run in hexadecimal", method: "GET", path: "/v1/admin/reconcile/0x1", fields: []string{"id"}},
		{name: "run of 70 bits", method: "GET", path: "/v1/admin/reconcile/999999999999999999999", fields: []string{"id"}},

		{name: "stock missing", method: "PUT", path: "/v1/products/cup", body: `{"name":"x"}`, fields: []string{"stock"}},
		{name: "stock null", method: "PUT", path: "/v1/products/cup", body: `{"name":"x","stock":null}`, fields: []string{"stock"}},
		{name: "stock below zero", method: "PUT", path: "/v1/products/cup", body: `{"name":"x","stock":-1}`, fields: []string{"stock"}},
		{name: "stock absurd", method: "PUT", path: "/v1/products/cup", body: `{"name":"x","stock":1000000001}`, fields: []string{"stock"}},
		{name: "name missing", method: "PUT", path: "/v1/products/cup", body: `{"stock":1}`, fields: []string{"name"}},
		{name: "name empty", method: "PUT", path: "/v1/products/cup", body: `{"name":"","stock":1}`, fields: []string{"name"}},
		{name: "name with a line break", method: "PUT", path: "/v1/products/cup", body: `{"name":"a\nb","stock":1}`, fields: []string{"name"}},
		{name: "name too long", method: "PUT", path: "/v1/products/cup", body: `{"name":"` + strings.Repeat("ä", 201) + `","stock":1}`, fields: []string{"name"}},
		{name: "name with half a pair", method: "PUT", path: "/v1/products/cup", body: `{"name":"tea \uDE00","stock":1}`, fields: []string{"name"}},
		{name: "bad sku", method: "PUT", path: "/v1/products/a%2Fb", body: `{"name":"x","stock":1}`, fields: []string{"sku"}},
		{name: "sku in the body", method: "PUT", path: "/v1/products/cup", body: `{"sku":"mug","name":"x","stock":1}`, fields: []string{"sku"}},
	}
	for _, test := range tests {
		if test.method == "" {
			test.method = "POST"
		}
		if test.path == "" {
			test.path = "/v1/orders"
		}
		if test.status == 0 {
			test.status = http.StatusBadRequest
		}
		a := s.do(test.method, test.path, test.body, test.header...)
		require.Equal(t, test.status, a.status, "%s: %s", test.name, a.body)
		_, fields := a.problem(t)
		require.Subset(t, fields, test.fields, "%s: %s", test.name, a.body)
		require.Equal(t, len(test.fields) > 0, len(fields) > 0, "%s: %s", test.name, a.body)
	}
	require.Equal(t, before, s.contents(t.Context()))
}

func TestInput_WhatIsAllowedIsTaken(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "100")
	good := order("cup")
	for name, test := range map[string]struct {
		body   string
		header []string
	}{
		"largest body":     {body: good + strings.Repeat(" ", 64<<10-len(good))},
		"charset":          {good, []string{"Content-Type: application/json; charset=UTF-8"}},
		"another case":     {good, []string{"Content-Type: Application/JSON"}},
		"escaped":          {strings.Replace(good, "ann", `\u0061nn`, 1), nil},
		"blank in the key": {good, []string{"Idempotency-Key: a b"}},
		"longest key":      {good, []string{"Idempotency-Key: " + strings.Repeat("~", 128)}},
	} {
		a := s.do("POST", "/v1/orders", test.body, test.header...)
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", name, a.body)
		require.Equal(t, "ann", a.json(t)["user"], name)
		require.Equal(t, fmt.Sprint("/v1/orders/", a.json(t)["no"]), a.header.Get("Location"), name)
	}
	no := s.place()
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/orders/%"+fmt.Sprintf("%02x", no[0])+no[1:], "").status, "an escaped id is that id")
}

// A document stays small however many fields are at fault.
func TestInput_ManyFaultsAreCut(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	var fields []string
	for i := range 3000 {
		fields = append(fields, fmt.Sprintf(`"field%d":1`, i))
	}
	a := s.do("POST", "/v1/orders", "{"+strings.Join(fields, ",")+"}")
	_, named := a.problem(t)
	require.Len(t, named, 20)
	a = s.do("POST", "/v1/orders", `{"`+strings.Repeat("x", 60000)+`":1}`)
	a.problem(t)
	require.Less(t, len(a.body), 2000)
}
