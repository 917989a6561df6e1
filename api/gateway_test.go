package api_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

// row is what the ledger has of a message.
type row struct {
	Topic, Key, ContentType, Headers, Payload string
	Untracked                                 bool
	Delay                                     int64 // seconds from its making to its due time
}

func (s *shop) row(id any) (r row) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), `SELECT topic, message_key, content_type, COALESCE(headers, ''), payload, untracked,
		TIMESTAMPDIFF(SECOND, created_at, due_at) FROM outbox_messages WHERE id = ?`, id).
		Scan(&r.Topic, &r.Key, &r.ContentType, &r.Headers, &r.Payload, &r.Untracked, &r.Delay))
	return r
}

// routes counts what is served below a path.
func (s *shop) routes(prefix string) (n int) {
	for _, r := range s.server.Routes() {
		if strings.HasPrefix(r.Path, prefix) {
			n++
		}
	}
	return n
}

func TestMessages_WriteWhatIsSent(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for i, c := range []struct {
		body   string
		header []string
		want   row
	}{
		{`{}`, nil, row{ContentType: "application/octet-stream"}},
		{`{"payload": {"b" :1.50, "a":[ 1e2 ,"\u00fc\n" ],"a":null}  ,"delay":"1h30m"}`, nil, row{
			ContentType: "application/json", Payload: `{"b" :1.50, "a":[ 1e2 ,"\u00fc\n" ],"a":null}`, Delay: 5400,
		}},
		{`{"payload":null}`, nil, row{ContentType: "application/json", Payload: "null"}},
		{`{"payload":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, nil, row{
			ContentType: "application/json", Payload: strings.Repeat("[", 100) + strings.Repeat("]", 100),
		}},
		{`{"payload":"` + strings.Repeat("x", 256<<10-2) + `"}`, nil, row{ContentType: "application/json", Payload: `"` + strings.Repeat("x", 256<<10-2) + `"`}},
		{`{"payload_base64":"AP9oaQ==","content_type":"image/png","headers":{"lang":"de"},"tracked":false}`, nil, row{
			ContentType: "image/png", Payload: "\x00\xffhi", Headers: `{"lang":"de"}`, Untracked: true,
		}},
		{`{"headers":{"lang":"de"}}`, []string{"Traceparent: " + trace, "Tracestate: a=b", "Tracestate: c=d", "Other: x"}, row{
			ContentType: "application/octet-stream", Headers: `{"lang":"de","traceparent":"` + trace + `","tracestate":"a=b,c=d"}`,
		}},
		{`{}`, []string{"Traceparent: " + strings.ToUpper(trace), "Tracestate: a=b"}, row{ContentType: "application/octet-stream"}}, // a proxy's, to be ignored
		{`{"headers":{"ce-subject":"mine"}}`, []string{
			"Ce-Specversion: 1.0", `ce-id: "a \"b\""`, "Ce-Source: /caf%C3%A9", "Ce-Type: t", "Ce-Time: 2026-11-30T12:00:00Z", "Ce-Subject: theirs", "Ce-Myext1: 7",
		}, row{
			ContentType: "application/octet-stream",
			Headers:     `{"ce-id":"a \"b\"","ce-myext1":"7","ce-source":"/café","ce-specversion":"1.0","ce-subject":"mine","ce-time":"2026-11-30T12:00:00Z","ce-type":"t"}`,
		}},
	} {
		path := "/v1/messages/cart.remind/" + strconv.Itoa(i)
		a := s.do("PUT", path, c.body, c.header...)
		require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
		require.Equal(t, path, a.header.Get("Location"))
		c.want.Topic, c.want.Key = "cart.remind", strconv.Itoa(i)
		got := s.row(a.json(t)["id"])
		require.Empty(t, cmp.Diff(c.want, got))
		require.Equal(t, string(a.body), string(s.do("GET", path, "").body), "the answer is the message")
	}
}

// A key is any printable text, however it is spelled in the path.
func TestMessages_KeysArePercentEncoded(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	for spelled, key := range map[string]string{
		"a%2Fb": "a/b", "a+b": "a+b", "a%20b": "a b", "a%252Fb": "a%2Fb", "%E8%8C%B6%F0%9F%AB%96": "茶🫖", "%3F%23%25": "?#%", "%2E%2E%2E": "...",
		strings.Repeat("%C3%BC", 95): strings.Repeat("ü", 95), "A": "A", "a": "a", "a;b=c": "a;b=c", "%66%6F%6F": "foo",
	} {
		a := s.do("PUT", "/v1/messages/t/"+spelled, `{"delay":"1h"}`)
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", spelled, a.body)
		require.Equal(t, key, a.json(t)["key"])
		require.Equal(t, key, s.row(a.json(t)["id"]).Key)
		require.Equal(t, http.StatusOK, s.do("GET", a.header.Get("Location"), "").status, "its Location leads there: %s", a.header.Get("Location"))
		require.Equal(t, http.StatusNoContent, s.do("DELETE", "/v1/messages/t/"+spelled, "").status)
		require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/messages/t/"+spelled, "").status)
	}
}

func TestMessages_LiveFromPutToDone(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	const path = "/v1/messages/t/1"
	first := s.do("PUT", path, `{"payload":1,"delay":"1h"}`, "If-None-Match: *").json(t)
	require.Equal(t, http.StatusPreconditionFailed, s.do("PUT", path, `{"payload":2}`, "If-None-Match: *").status)
	require.Equal(t, "1", s.row(first["id"]).Payload)
	replaced := s.do("PUT", path, `{"payload":3,"delay":"2h"}`)
	require.Equal(t, http.StatusOK, replaced.status)
	require.Equal(t, first["id"], replaced.json(t)["id"])
	require.InDelta(t, 2, replaced.json(t)["generation"], 0)
	require.Equal(t, row{Topic: "t", Key: "1", ContentType: "application/json", Payload: "3", Delay: 7200}, s.row(first["id"]))
	moved := s.do("PATCH", path, `{"due_at":"2031-02-03T04:05:06.0000001Z"}`).json(t)
	require.Equal(t, "2031-02-03T04:05:06.000001Z", moved["due_at"], "rounded up")

	delivery := fmt.Sprintf("/v1/deliveries/%v", first["id"])
	ask := func(generation int, more string) answer {
		return s.do("GET", delivery+"?generation="+strconv.Itoa(generation)+more, "")
	}
	refused := func(a answer, status int, want string) {
		t.Helper()
		require.Equal(t, status, a.status, "%s", a.body)
		kind, _ := a.problem(t)
		require.Equal(t, want, kind)
	}
	early := ask(3, "")
	refused(early, http.StatusTooEarly, "delivery-early")
	require.Equal(t, "60", early.header.Get("Retry-After"))
	refused(s.do("POST", delivery+"/done", `{"generation":3}`), http.StatusTooEarly, "delivery-early")
	s.do("PATCH", path, `{"delay":"2500ms"}`)
	early = ask(4, "")
	refused(early, http.StatusTooEarly, "delivery-early")
	require.Contains(t, []string{"2", "3"}, early.header.Get("Retry-After"))
	s.do("PATCH", path, `{"delay":"400ms"}`)
	began := time.Now()
	require.Equal(t, http.StatusOK, ask(5, "").status, "what is almost due is waited for")
	require.Greater(t, time.Since(began), 100*time.Millisecond)
	refused(ask(4, ""), http.StatusConflict, "delivery-stale")
	refused(ask(6, ""), http.StatusNotFound, "no-such-delivery")
	refused(ask(5, "&store=other"), http.StatusConflict, "delivery-foreign")
	refused(s.do("POST", delivery+"/done", `{"generation":5,"store":"other"}`), http.StatusConflict, "delivery-foreign")
	store, err := s.store.StoreID(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, ask(5, "&store="+store).status)
	for range 2 {
		a := s.do("POST", delivery+"/done", `{"generation":5,"store":"`+store+`"}`)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		require.Equal(t, "done", a.json(t)["state"])
	}
	refused(ask(5, ""), http.StatusConflict, "delivery-done")
	refused(s.do("GET", path, ""), http.StatusNotFound, "no-such-message")
	ended := s.do("GET", fmt.Sprintf("%s?id=%v", path, first["id"]), "").json(t)
	require.Equal(t, "done", ended["state"])
	require.NotNil(t, ended["finished_at"])
	refused(s.do("GET", fmt.Sprintf("/v1/messages/t/2?id=%v", first["id"]), ""), http.StatusNotFound, "no-such-message")

	next := s.do("PUT", path, `{}`).json(t)
	require.NotEqual(t, first["id"], next["id"], "the key is free")
	require.Equal(t, http.StatusNoContent, s.do("DELETE", path, "").status)
	refused(s.do("DELETE", path, ""), http.StatusNotFound, "no-such-message")
	refused(s.do("PATCH", path, `{"delay":"1h"}`), http.StatusNotFound, "no-such-message")
	withdrawn := fmt.Sprintf("/v1/deliveries/%v", next["id"])
	refused(s.do("GET", withdrawn+"?generation=1", ""), http.StatusConflict, "delivery-withdrawn")
	refused(s.do("POST", withdrawn+"/done", `{"generation":1}`), http.StatusConflict, "delivery-withdrawn")
	refused(s.do("GET", "/v1/deliveries/999999?generation=1", ""), http.StatusNotFound, "no-such-delivery")
	refused(s.do("POST", "/v1/deliveries/999999/done", `{"generation":1}`), http.StatusNotFound, "no-such-delivery")

	dead := s.do("PUT", path, `{}`).json(t)
	_, err = s.db.ExecContext(t.Context(), "UPDATE outbox_messages SET state = 'dead' WHERE id = ?", dead["id"])
	require.NoError(t, err)
	refused(s.do("GET", fmt.Sprintf("/v1/deliveries/%v?generation=1", dead["id"]), ""), http.StatusConflict, "delivery-dead")
	require.Equal(t, "scheduled", s.do("PUT", path, `{}`).json(t)["state"], "replacing revives it")
}

func TestMessages_TheOrdersOwnCanBeSeen(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "10")
	no := s.place()
	a := s.do("GET", "/v1/messages/order.expire/"+no, "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, no, a.json(t)["key"])
}
