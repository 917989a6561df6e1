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

		{name: "message topic with a blank", method: "PUT", path: "/v1/messages/a%20b/1", body: `{}`, fields: []string{"topic"}},
		{name: "message key with a line break", method: "PUT", path: "/v1/messages/t/a%0Ab", body: `{}`, fields: []string{"key"}},
		{name: "message key that is no UTF-8", method: "GET", path: "/v1/messages/t/a%FF", fields: []string{"key"}},
		{name: "message key of 192 bytes", method: "DELETE", path: "/v1/messages/t/" + strings.Repeat("k", 192), fields: []string{"key"}},
		{name: "message with a query", method: "PUT", path: "/v1/messages/t/1?delay=1h", body: `{}`, fields: []string{"delay"}},
		{name: "message without a body", method: "PUT", path: "/v1/messages/t/1", header: []string{"Content-Type: application/json"}, fields: []string{"body"}},
		{name: "message as a structured event", method: "PUT", path: "/v1/messages/t/1", body: `{}`, header: []string{"Content-Type: application/cloudevents+json"}, status: http.StatusUnsupportedMediaType},
		{name: "message and more", method: "PUT", path: "/v1/messages/t/1", body: `{"key":"1"}`, fields: []string{"key"}},
		{name: "message with both payloads", method: "PUT", path: "/v1/messages/t/1", body: `{"payload":1,"payload_base64":"aGk="}`, fields: []string{"payload_base64"}},
		{name: "message with a payload twice", method: "PUT", path: "/v1/messages/t/1", body: `{"payload":1,"payload":1}`, fields: []string{"payload"}},
		{name: "message with bad base64", method: "PUT", path: "/v1/messages/t/1", body: `{"payload_base64":"aGk"}`, fields: []string{"payload_base64"}},
		{name: "message with a number for bytes", method: "PUT", path: "/v1/messages/t/1", body: `{"payload_base64":1}`, fields: []string{"payload_base64"}},
		{name: "message whose payload is no UTF-8", method: "PUT", path: "/v1/messages/t/1", body: "{\"payload\":\"\xff\"}", fields: []string{"payload"}},
		{name: "message with a large payload", method: "PUT", path: "/v1/messages/t/1", body: `{"payload":"` + strings.Repeat("x", 256<<10) + `"}`, status: http.StatusRequestEntityTooLarge},
		{name: "message with a large body", method: "PUT", path: "/v1/messages/t/1", body: `{"payload":"` + strings.Repeat("x", 512<<10) + `"}`, status: http.StatusRequestEntityTooLarge},
		{name: "message with a long content type", method: "PUT", path: "/v1/messages/t/1", body: `{"content_type":"` + strings.Repeat("x", 128) + `"}`, fields: []string{"content_type"}},
		{name: "message with a list of headers", method: "PUT", path: "/v1/messages/t/1", body: `{"headers":["a"]}`, fields: []string{"headers"}},
		{name: "message with a number for a header", method: "PUT", path: "/v1/messages/t/1", body: `{"headers":{"h":1}}`, fields: []string{"headers.h"}},
		{name: "message with a header of the broker", method: "PUT", path: "/v1/messages/t/1", body: `{"headers":{"x-delay":"1"}}`, fields: []string{"headers"}},
		{name: "message with large headers", method: "PUT", path: "/v1/messages/t/1", body: `{"headers":{"h":"` + strings.Repeat("x", 16<<10) + `"}}`, fields: []string{"headers"}},
		{name: "message with half an event", method: "PUT", path: "/v1/messages/t/1", body: `{}`, header: []string{"Ce-Id: 1"}, fields: []string{"headers"}},
		{name: "message with an attribute that is badly encoded", method: "PUT", path: "/v1/messages/t/1", body: `{}`, header: []string{"Ce-Id: 100%"}, fields: []string{"ce-id"}},
		{name: "message with an attribute twice", method: "PUT", path: "/v1/messages/t/1", body: `{}`, header: []string{"Ce-Id: 1", "Ce-Id: 2"}, fields: []string{"ce-id"}},
		{name: "message with a bad trace", method: "PUT", path: "/v1/messages/t/1", body: `{"headers":{"traceparent":"1"}}`, fields: []string{"headers"}},
		{name: "message with a key that clients resolve", method: "PUT", path: "/v1/messages/t/%2E%2E", body: `{}`, fields: []string{"key"}},
		{name: "message with a topic that clients resolve", method: "PUT", path: "/v1/messages/%2E/1", body: `{}`, fields: []string{"topic"}},
		{name: "delivery of no generation", method: "POST", path: "/v1/deliveries/1/done", body: `{"generation":0}`, fields: []string{"generation"}},
		{name: "message due at the end of the last year", method: "PUT", path: "/v1/messages/t/1", body: `{"due_at":"9998-12-31T23:59:59.9999999Z"}`, fields: []string{"due_at"}},
		{name: "message with both times", method: "PUT", path: "/v1/messages/t/1", body: `{"due_at":"` + soon + `","delay":"1h"}`, fields: []string{"delay"}},
		{name: "message with a delay below zero", method: "PUT", path: "/v1/messages/t/1", body: `{"delay":"-1s"}`, fields: []string{"delay"}},
		{name: "message with a delay of ISO 8601", method: "PUT", path: "/v1/messages/t/1", body: `{"delay":"PT1H"}`, fields: []string{"delay"}},
		{name: "message with a number for a delay", method: "PUT", path: "/v1/messages/t/1", body: `{"delay":60}`, fields: []string{"delay"}},
		{name: "message with a local time", method: "PUT", path: "/v1/messages/t/1", body: `{"due_at":"2099-01-01T00:00:00"}`, fields: []string{"due_at"}},
		{name: "message due in the year 1", method: "PUT", path: "/v1/messages/t/1", body: `{"due_at":"0001-01-01T00:00:00Z"}`, fields: []string{"due_at"}},
		{name: "message due in the year 9999", method: "PUT", path: "/v1/messages/t/1", body: `{"due_at":"9999-01-01T00:00:00Z"}`, fields: []string{"due_at"}},
		{name: "message with text for tracked", method: "PUT", path: "/v1/messages/t/1", body: `{"tracked":"no"}`, fields: []string{"tracked"}},
		{name: "message with an entity tag", method: "PUT", path: "/v1/messages/t/1", body: `{}`, header: []string{`If-None-Match: "1"`}, fields: []string{"If-None-Match"}},
		{name: "message moved to nowhere", method: "PATCH", path: "/v1/messages/t/1", body: `{}`, fields: []string{"due_at"}},
		{name: "message moved to two times", method: "PATCH", path: "/v1/messages/t/1", body: `{"due_at":"` + soon + `","delay":"1h"}`, fields: []string{"delay"}},
		{name: "message moved with a payload", method: "PATCH", path: "/v1/messages/t/1", body: `{"delay":"1h","payload":1}`, fields: []string{"payload"}},
		{name: "message withdrawn with a body", method: "DELETE", path: "/v1/messages/t/1", body: `{"a":1}`, fields: []string{"a"}},
		{name: "message by a bad id", method: "GET", path: "/v1/messages/t/1?id=01", fields: []string{"id"}},
		{name: "order's message put", method: "PUT", path: "/v1/messages/order.expire/" + no, body: `{"delay":"9h"}`, status: http.StatusForbidden},
		{name: "order's reminder put", method: "PUT", path: "/v1/messages/order.remind/" + no, body: `{"delay":"9h"}`, status: http.StatusForbidden},
		{name: "order's message moved", method: "PATCH", path: "/v1/messages/order.expire/" + no, body: `{"delay":"9h"}`, status: http.StatusForbidden},
		{name: "order's message withdrawn", method: "DELETE", path: "/v1/messages/order.expire/" + no, status: http.StatusForbidden},
		{name: "order's message withdrawn by another spelling", method: "DELETE", path: "/v1/messages/order%2Eexpire/" + no, status: http.StatusForbidden},
		{name: "order's message done", method: "POST", path: "/v1/deliveries/1/done", body: `{"generation":1}`, status: http.StatusForbidden},
		{name: "delivery without a generation", method: "GET", path: "/v1/deliveries/1", fields: []string{"generation"}},
		{name: "delivery of no number", method: "GET", path: "/v1/deliveries/x?generation=1", fields: []string{"id"}},
		{name: "delivery of generation zero", method: "GET", path: "/v1/deliveries/1?generation=0", fields: []string{"generation"}},
		{name: "done without a generation", method: "POST", path: "/v1/deliveries/1/done", body: `{}`, fields: []string{"generation"}},
		{name: "done with text", method: "POST", path: "/v1/deliveries/1/done", body: `{"generation":"1"}`, fields: []string{"generation"}},

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
