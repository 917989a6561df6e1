package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// Whatever is sent: no 5xx, a problem document for every 4xx, and then not one byte written.
func FuzzBodies(f *testing.F) {
	good := order("cup")
	for route, bodies := range [][]string{
		{
			good, strings.ToUpper(good), good + " ", good + "x", good[1:], strings.Replace(good, "2", "-2", 1), strings.Replace(good, "2", "2e0", 1),
			strings.Replace(good, "ann", `\ud800`, 1), strings.Replace(good, "ann", "\xff", 1), strings.Replace(good, `"ann"`, "1e400", 1),
			strings.Replace(good, "ann", `a\u0000`, 1), strings.Replace(good, "{", `{"user":"x",`, 1), `{"items":[{},[],null,1]}`, "null", "[]", "",
		},
		{`{"payment_id":"p","amount":500}`, `{"payment_id":"p","amount":501}`, `{"payment_id":1,"amount":"500"}`, `{"amount":9223372036854775808}`},
		{"", "{}", "null", `{"a":1}`, "[", "\x00"},
		{`{"name":"Teapot 🫖","stock":5}`, `{"name":"\ud83e\uded6","stock":0}`, `{"name":"\ud83e","stock":-1}`, `{"name":"x","stock":1000000001}`},
		{
			`{"due_at":"` + time.Now().Add(time.Hour).Format(time.RFC3339Nano) + `"}`, `{"due_at":"2026-11-30T24:00:00Z"}`, `{"due_at":0}`,
			`{"due_at":"9999-12-31T23:59:59.999999999-23:59"}`,
		},
		{`{"audit":true,"dry_run":false}`, `{"audit":0}`, `{"rearm":true}`, ""},
		{
			`{"payload":{"a":[1,2.50,"x"]},"delay":"30m","headers":{"h":"v"},"tracked":false}`, `{"payload_base64":"aGk=","content_type":"text/plain"}`,
			`{"payload":null}`, `{"payload":"\ud800"}`, "{\"payload\":\"\xff\"}", `{"payload":1,"payload":2}`, `{"payload_base64":"aGk"}`, `{"payload":1,"payload_base64":""}`,
			`{"due_at":"2099-01-01T00:00:00Z","delay":"1s"}`, `{"due_at":"0001-01-01T00:00:00Z"}`, `{"delay":"-1s"}`, `{"delay":"290y"}`, `{"headers":{"ce-id":"1"}}`,
			`{"headers":{"traceparent":"00"}}`, `{"headers":{"x-delay":1}}`, `{"headers":[]}`, `{"delay":"2562047h"}`, `{"due_at":null}`,
		},
		{`{"delay":"1h"}`, `{"due_at":"2099-01-01T00:00:00Z"}`, `{}`, `{"delay":1}`, `{"due_at":"0001-01-01T00:00:00Z"}`, `{"due_at":"9999-12-31T23:59:59Z"}`},
		{`{"generation":1}`, `{"generation":0,"store":"x"}`, `{"generation":"1"}`, `{}`},
	} {
		for _, body := range bodies {
			f.Add(byte(route), "", []byte(body))
		}
	}
	f.Add(byte(0), "key", []byte(good))
	f.Add(byte(0), "\x80", []byte(good))

	// One process runs its inputs one after the other, so one shop serves them all.
	s := newShop(f, api.Config{})
	s.stock("cup", "20")
	no := s.place()
	require.Equal(f, 201, s.do("PUT", "/v1/messages/cart.remind/1", "{}").status)
	before := s.contents(f.Context())
	f.Fuzz(func(t *testing.T, route byte, key string, body []byte) {
		shop := *s
		shop.t = t
		header := []string{"Content-Type: application/json"}
		if key != "" {
			header = append(header, "Idempotency-Key: "+key)
		}
		method, path := "POST", "/v1/orders"
		switch route % 9 {
		case 1:
			path = "/v1/orders/" + no + "/pay"
		case 2:
			path = "/v1/orders/" + no + "/cancel"
		case 3:
			method, path = "PUT", "/v1/products/cup"
		case 4:
			method, path = "PATCH", "/v1/orders/"+no+"/due"
		case 5:
			path = "/v1/admin/reconcile"
		case 6:
			method, path = "PUT", "/v1/messages/cart.remind/1"
		case 7:
			method, path = "PATCH", "/v1/messages/cart.remind/1"
		case 8:
			path = "/v1/deliveries/1/done"
		}
		a := shop.do(method, path, string(body), header...)
		require.Less(t, a.status, 500, "%s", a.body)
		after := shop.contents(t.Context())
		if a.status >= 400 {
			a.problem(t)
			require.Equal(t, before, after)
		}
		before = after
	})
}
