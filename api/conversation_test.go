package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// TestRoutes_SayWhatTheGoldenFileSays holds one exchange with every route, in the order of a shop's day. Numbers and times are
// replaced; everything else is compared byte by byte.
func TestRoutes_SayWhatTheGoldenFileSays(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	var said strings.Builder
	numbers := map[string]string{}
	say := func(method, path, body string, header ...string) answer {
		a := s.do(method, path, body, header...)
		said.WriteString("> " + method + " " + path + "\n")
		for _, line := range header {
			said.WriteString("> " + line + "\n")
		}
		if body != "" {
			said.WriteString("> " + body + "\n")
		}
		fmt.Fprintf(&said, "< %d %s\n", a.status, a.header.Get("Content-Type"))
		for _, name := range []string{"Location", "Allow", "Retry-After"} {
			if v := a.header.Get(name); v != "" {
				said.WriteString("< " + name + ": " + v + "\n")
			}
		}
		said.WriteString("< " + string(a.body) + "\n")
		return a
	}
	name := func(a answer, as string) string {
		no, _ := a.json(t)["no"].(string)
		numbers[no] = as
		return no
	}

	say("GET", "/healthz", "")
	say("GET", "/readyz", "")
	say("GET", "/v1/products/cup", "")
	say("PUT", "/v1/products/cup", `{"name":"Cup & <saucer> ☕","stock":7}`)
	say("GET", "/v1/products/cup", "")
	say("GET", "/v1/orders", "")

	one := `{"kind":"normal","user":"ann","items":[{"sku":"cup","quantity":2,"price":250}]}`
	first := name(say("POST", "/v1/orders", one, "Idempotency-Key: k-1"), "ORDER-1")
	say("POST", "/v1/orders", one, "Idempotency-Key: k-1")
	say("POST", "/v1/orders", strings.Replace(one, "250", "251", 1), "Idempotency-Key: k-1")
	say("POST", "/v1/orders", strings.Replace(one, ":2,", ":6,", 1))
	second := name(say("POST", "/v1/orders", strings.Replace(one, "normal", "flash", 1)), "ORDER-2")
	say("GET", "/v1/orders/"+first, "")
	say("GET", "/v1/orders/missing", "")

	due := `{"due_at":"` + time.Now().Add(time.Hour).Format("2006-01-02T15:04:05.000000Z07:00") + `"}`
	say("PATCH", "/v1/orders/"+first+"/due", due)
	say("POST", "/v1/orders", one, "Idempotency-Key: k-1")
	say("PATCH", "/v1/orders/"+first+"/due", `{"due_at":"2020-01-01T00:00:00.000000Z"}`)
	say("PATCH", "/v1/orders/missing/due", due)

	say("POST", "/v1/orders/"+first+"/pay", `{"payment_id":"p-1","amount":499}`)
	say("POST", "/v1/orders/"+first+"/pay", `{"payment_id":"p-1","amount":500}`)
	say("POST", "/v1/orders/"+first+"/pay", `{"payment_id":"p-1","amount":500}`)
	say("POST", "/v1/orders/"+first+"/pay", `{"payment_id":"p-2","amount":500}`)
	say("POST", "/v1/orders/"+second+"/pay", `{"payment_id":"p-1","amount":500}`)
	say("POST", "/v1/orders/missing/pay", `{"payment_id":"p-9","amount":500}`)
	say("POST", "/v1/orders/"+first+"/cancel", "")
	say("POST", "/v1/orders/"+second+"/cancel", "")
	say("POST", "/v1/orders/"+second+"/cancel", "{}")
	say("POST", "/v1/orders/"+second+"/pay", `{"payment_id":"p-3","amount":500}`)
	say("POST", "/v1/orders/missing/cancel", "")
	say("PATCH", "/v1/orders/"+first+"/due", due)
	say("PATCH", "/v1/orders/"+second+"/due", due)

	page := say("GET", "/v1/orders?user=ann&status=&limit=1&after=", "")
	say("GET", "/v1/orders?limit=1&after="+fmt.Sprint(page.json(t)["next"]), "")
	say("GET", "/v1/orders?user=ann&status=pending", "")

	message := "/v1/messages/cart.remind/cart%2F42%20%C3%BC"
	say("PUT", message, `{"payload":{"cart": 42.50},"delay":"30m"}`)
	say("PUT", message, `{"payload_base64":"aGk=","content_type":"text/plain","headers":{"lang":"de"},"due_at":"2030-01-01T00:00:00Z"}`)
	say("PUT", message, `{}`, "If-None-Match: *")
	say("GET", message, "")
	say("PATCH", message, `{"delay":"0s"}`)
	id := fmt.Sprint(say("GET", message, "").json(t)["id"])
	say("GET", "/v1/deliveries/"+id+"?generation=2", "")
	say("GET", "/v1/deliveries/"+id+"?generation=3", "")
	say("POST", "/v1/deliveries/"+id+"/done", `{"generation":3}`)
	say("POST", "/v1/deliveries/"+id+"/done", `{"generation":3}`)
	say("GET", "/v1/deliveries/"+id+"?generation=3", "")
	say("GET", "/v1/deliveries/1000000?generation=3", "")
	say("GET", message, "")
	say("GET", message+"?id="+id, "")
	say("PUT", "/v1/messages/cart.remind/1", `{"tracked":false,"delay":"1h"}`)
	say("GET", "/v1/deliveries/"+fmt.Sprint(say("GET", "/v1/messages/cart.remind/1", "").json(t)["id"])+"?generation=1", "")
	say("DELETE", "/v1/messages/cart.remind/1", "")
	say("DELETE", "/v1/messages/cart.remind/1", "")
	say("PATCH", "/v1/messages/cart.remind/1", `{"delay":"1h"}`)
	say("DELETE", "/v1/messages/order.expire/1", "")

	say("POST", "/v1/admin/reconcile", "")
	say("POST", "/v1/admin/reconcile", `{"audit":true,"dry_run":true}`)
	say("POST", "/v1/admin/reconcile", `{"dry_run":true,"audit":true}`) // the same waits already
	say("GET", "/v1/admin/reconcile/2", "")
	say("GET", "/v1/admin/reconcile/9223372036854775807", "")

	say("GET", "/v1/nothing", "")
	say("GET", "/v1/orders/", "")
	say("DELETE", "/v1/orders", "")
	say("POST", "/v1/orders", `{"kind":"gift","user":7,"items":[{"sku":"cup","quantity":1.5}],"coupon":"x"}`)
	say("POST", "/v1/orders", `{"kind":"normal","user":"ann","items":[{"sku":"mug","quantity":1,"price":1}]}`)
	say("POST", "/v1/orders", one, "Content-Type: text/plain")

	got := said.String()
	for no, as := range numbers {
		got = strings.ReplaceAll(got, no, as)
	}
	got = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)"`).ReplaceAllString(got, `"TIME"`)
	file := filepath.Join("testdata", "conversation.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), got))
}
