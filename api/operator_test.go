package api_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// message writes a message and returns its id as the API writes it.
func (s *shop) message(m outbox.Message) string {
	s.t.Helper()
	require.NoError(s.t, s.gorm.Transaction(func(tx *gorm.DB) error { return s.store.Enqueue(s.t.Context(), tx, &m) }))
	return fmt.Sprint(m.ID)
}

func (s *shop) exec(query string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), query, args...)
	require.NoError(s.t, err)
}

// get reads an answer that must be 200.
func (s *shop) get(path string) map[string]any {
	s.t.Helper()
	a := s.do("GET", path, "")
	require.Equal(s.t, http.StatusOK, a.status, "%s: %s", path, a.body)
	return a.json(s.t)
}

// rows are the objects of a list in an answer.
func rows(tb testing.TB, body map[string]any, name string) (all []map[string]any) {
	tb.Helper()
	list, ok := body[name].([]any)
	require.True(tb, ok, "%s in %v", name, body)
	for _, v := range list {
		o, ok := v.(map[string]any)
		require.True(tb, ok)
		all = append(all, o)
	}
	return all
}

// column are the values of a field in each row.
func column(rows []map[string]any, name string) []any {
	all := make([]any, len(rows))
	for i, r := range rows {
		all[i] = r[name]
	}
	return all
}

// effect runs a message's effect as a consumer would.
func (s *shop) effect(topic, key string, fn func(tx *sql.Tx, d outbox.Delivery) error) {
	s.t.Helper()
	r, err := s.store.Lookup(s.t.Context(), topic, key)
	require.NoError(s.t, err)
	store, err := s.store.StoreID(s.t.Context())
	require.NoError(s.t, err)
	d := outbox.Delivery{Store: store, ID: r.ID, Topic: topic, Key: key, Generation: r.Generation, Attempt: r.Attempts, DueAt: r.DueAt}
	_, err = s.store.SQL().Handle(s.t.Context(), d, func(tx *sql.Tx) error { return fn(tx, d) })
	require.NoError(s.t, err)
}

func TestMessages_AreListedByWhatTheyAreSearchedBy(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	var ids []any
	for i := range 5 {
		ids = append(ids, s.message(outbox.Message{Topic: "mail", Key: fmt.Sprintf("cart-%d", i), Delay: time.Duration(i) * time.Hour}))
	}
	other := s.message(outbox.Message{Topic: "push", Key: "größe/1", Delay: time.Hour})
	s.exec("UPDATE outbox_messages SET state = 'dead', available_at = NULL, attempts = 10, last_error = 'Read Timeout', failed_at = UTC_TIMESTAMP(6) WHERE id = ?", ids[4])
	found := func(query string) []any {
		t.Helper()
		return column(rows(t, s.get("/v1/admin/messages?"+query), "messages"), "id")
	}
	require.Equal(t, []any{other, ids[4], ids[3], ids[2], ids[1], ids[0]}, found(""), "the newest first")
	require.Equal(t, ids, found("topic=mail"))
	require.Equal(t, []any{other}, found("key="+url.QueryEscape("größe/1")))
	require.Equal(t, ids, found("key_prefix=cart-&topic="))
	require.Equal(t, ids[:4], found("state=scheduled&topic=mail"))
	require.Equal(t, ids[4:], found("error=timeout"))
	at := func(d time.Duration) string { return url.QueryEscape(time.Now().Add(d).Format(time.RFC3339)) }
	require.Equal(t, ids[2:4], found("topic=mail&state=scheduled&due_from="+at(90*time.Minute)+"&due_to="+at(200*time.Minute)))

	first := s.get("/v1/admin/messages?limit=4")
	rest := s.get("/v1/admin/messages?limit=4&after=" + fmt.Sprint(first["next"]))
	require.Len(t, rows(t, first, "messages"), 4)
	require.Equal(t, []any{ids[1], ids[0]}, column(rows(t, rest, "messages"), "id"))
	require.Empty(t, rest["next"])

	dead := rows(t, s.get("/v1/admin/messages?state=dead"), "messages")[0]
	require.Equal(t, "Read Timeout", dead["last_error"])
	require.Nil(t, dead["available_at"])
	require.Nil(t, dead["lateness_ms"])
	require.IsType(t, "", dead["failed_at"])

	for query, field := range map[string]string{
		"state=gone": "state", "limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "topic=a%20b": "topic", "due_from=monday": "due_from",
		"due_to=2026-01-01": "due_to", "after=x": "after", "key=a&key_prefix=b": "key_prefix", "colour=red": "colour", "error=" + string(make([]byte, 0)) + longText(201): "error",
	} {
		a := s.do("GET", "/v1/admin/messages?"+query, "")
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", query, a.body)
		_, fields := a.problem(t)
		require.Equal(t, []string{field}, fields, query)
	}
}

func longText(n int) string { return fmt.Sprintf("%0*d", n, 0) }

func TestStory_TellsWhatBecameOfAMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	id := s.message(outbox.Message{
		Topic: "mail", Key: "1", Delay: 400 * time.Hour, Payload: []byte(`{"größe":1}`), ContentType: "application/json", Headers: map[string]string{"a": "b"},
	})
	told := func() (what []any, events []map[string]any) {
		t.Helper()
		events = rows(t, s.get("/v1/admin/messages/"+id), "story")
		return column(events, "what"), events
	}
	what, _ := told()
	require.Equal(t, []any{"enqueued", "due"}, what)
	a := s.do("POST", "/v1/admin/messages/"+id+"/publish-now", "", "Duebox-Actor: Ann Ünal")
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.InDelta(t, 2, a.json(t)["generation"], 0)
	s.effect("mail", "1", func(*sql.Tx, outbox.Delivery) error { return errors.New("no such mailbox") })
	what, events := told()
	require.Equal(t, []any{"enqueued", "published now", "due", "attempt failed", "next"}, what)
	require.Equal(t, "Ann Ünal", events[1]["actor"])
	require.Equal(t, "api", events[1]["via"])
	require.Contains(t, events[1]["detail"], "was scheduled, due ")
	require.Equal(t, "failed once: no such mailbox", events[3]["detail"])
	require.Positive(t, events[3]["lateness_ms"])
	s.effect("mail", "1", func(*sql.Tx, outbox.Delivery) error { return nil })
	what, events = told()
	require.Equal(t, []any{"enqueued", "published now", "due", "attempt failed", "finished"}, what)

	message, _ := s.get("/v1/admin/messages/" + id)["message"].(map[string]any)
	require.Equal(t, `{"größe":1}`, message["payload"])
	require.Nil(t, message["payload_base64"])
	require.InDelta(t, 13, message["payload_bytes"], 0)
	require.Equal(t, map[string]any{"a": "b"}, message["headers"])
	require.Equal(t, events[4]["lateness_ms"], message["lateness_ms"])

	bytes := s.message(outbox.Message{Topic: "mail", Payload: []byte{0xff, 0}})
	message, _ = s.get("/v1/admin/messages/" + bytes)["message"].(map[string]any)
	require.Nil(t, message["payload"])
	require.Equal(t, "/wA=", message["payload_base64"])

	for path, status := range map[string]int{"/v1/admin/messages/99999": 404, "/v1/admin/messages/x": 400, "/v1/admin/messages/1?id=1": 400} {
		require.Equal(t, status, s.do("GET", path, "").status, path)
	}
}

func TestActions_ChangeAMessageAndSayWhyNot(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	id := s.message(outbox.Message{Topic: "mail", Key: "1", Delay: time.Hour})
	path := "/v1/admin/messages/" + id + "/"
	a := s.do("POST", path+"reschedule", `{"due_at":"2035-01-01T00:00:00Z"}`)
	require.Equal(t, "2035-01-01T00:00:00.000000Z", a.json(t)["due_at"])
	a = s.do("POST", path+"reschedule", `{"delay":"1h"}`)
	require.InDelta(t, 3, a.json(t)["generation"], 0)
	require.Equal(t, "canceled", s.do("POST", path+"cancel", `{}`).json(t)["state"])
	for action, body := range map[string]string{"requeue": "", "cancel": "", "publish-now": "", "reschedule": `{"delay":"1h"}`} {
		a := s.do("POST", path+action, body)
		require.Equal(t, http.StatusConflict, a.status, action)
		kind, _ := a.problem(t)
		require.Equal(t, "wrong-state", kind)
		require.Contains(t, string(a.body), "it is canceled, and "+action+" is for what is ")
		require.Equal(t, http.StatusNotFound, s.do("POST", "/v1/admin/messages/4711/"+action, body).status)
	}
	for body, field := range map[string]string{`{}`: "due_at", `{"delay":"x"}`: "delay", `{"delay":"1h","due_at":"2035-01-01T00:00:00Z"}`: "delay", `{"delay":"1000000h"}`: "delay"} {
		a := s.do("POST", path+"reschedule", body)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", body, a.body)
		_, fields := a.problem(t)
		require.Equal(t, []string{field}, fields)
	}
	require.Equal(t, http.StatusBadRequest, s.do("POST", path+"cancel", `{"why":"x"}`).status)
	a = s.do("POST", path+"cancel", "", "Duebox-Actor: "+longText(65))
	require.Equal(t, http.StatusBadRequest, a.status)

	entries := s.get("/v1/admin/audit?message_id=" + id)
	require.Equal(t, []any{"cancel", "reschedule", "reschedule"}, column(rows(t, entries, "entries"), "action"), "what was refused is not in it")
	require.Equal(t, "local", rows(t, entries, "entries")[0]["actor"])
	page := s.get("/v1/admin/audit?actor=local&limit=2")
	require.Len(t, rows(t, page, "entries"), 2)
	require.Len(t, rows(t, s.get("/v1/admin/audit?actor=local&limit=2&after="+fmt.Sprint(page["next"])), "entries"), 1)
	require.Empty(t, rows(t, s.get("/v1/admin/audit?actor=bob"), "entries"))
}

func TestBulk_DoesItToAllThatAFilterPicks(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	for range 30 {
		s.message(outbox.Message{Topic: "mail", Delay: time.Hour})
	}
	s.exec("UPDATE outbox_messages SET state = 'dead', available_at = NULL, last_error = 'x' WHERE id <= 20")
	bulk := func(body string) map[string]any {
		t.Helper()
		a := s.do("POST", "/v1/admin/messages/bulk", body)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", body, a.body)
		return a.json(t)
	}
	dry := bulk(`{"action":"requeue","filter":{"state":"dead"},"dry_run":true}`)
	began := fmt.Sprint(dry["began_at"])
	delete(dry, "began_at")
	require.Equal(t, map[string]any{"matched": 20.0, "changed": 0.0, "protected": 0.0, "why": nil, "more": false, "next": ""}, dry)
	some := bulk(`{"action":"requeue","filter":{"error":"x"},"limit":15}`)
	require.InDelta(t, 15, some["changed"], 0)
	require.Equal(t, true, some["more"])
	require.InDelta(t, 5, bulk(`{"action":"requeue","filter":{"error":"x"},"after":"` + fmt.Sprint(some["next"]) + `","began_at":"` + fmt.Sprint(some["began_at"]) + `"}`)["changed"], 0)
	require.InDelta(t, 10, bulk(`{"action":"cancel","filter":{"topic":"mail"},"dry_run":true,"began_at":"` + began + `"}`)["matched"], 0, "the others were requeued since")
	require.InDelta(t, 30, bulk(`{"action":"reschedule","filter":{"topic":"mail"},"delay":"2h"}`)["changed"], 0)
	require.InDelta(t, 30, bulk(`{"action":"cancel","filter":{"topic":"mail"}}`)["changed"], 0)
	require.Equal(t, int64(80), s.number("SELECT COUNT(*) FROM outbox_audit"))
	for body, field := range map[string]string{
		`{"action":"cancel"}`:                                                             "filter",
		`{"action":"cancel","filter":{}}`:                                                 "filter",
		`{"action":"cancel","filter":{"topic":""}}`:                                       "filter.topic",
		`{"action":"cancel","filter":{"colour":"red"}}`:                                   "filter.colour",
		`{"action":"cancel","filter":{"state":"done"}}`:                                   "state",
		`{"action":"purge","filter":{"topic":"mail"}}`:                                    "action",
		`{"action":"cancel","filter":{"topic":"mail"},"limit":0}`:                         "limit",
		`{"action":"cancel","filter":{"topic":"mail"},"delay":"1h"}`:                      "delay",
		`{"action":"cancel","filter":{"topic":"mail"},"began_at":"1"}`:                    "began_at",
		`{"action":"cancel","filter":{"topic":"mail"},"after":"e30"}`:                     "began_at",
		`{"action":"reschedule","filter":{"topic":"mail"}}`:                               "due_at",
		`{"action":"cancel","filter":{"topic":"mail","due_from":"x"}}`:                    "due_from",
		`{"action":"cancel","filter":{"topic":"mail","key":""}}`:                          "filter.key",
		`{"action":"cancel","filter":{"topic":"mail","due_to":""}}`:                       "filter.due_to",
		`{"action":"cancel","filter":{"topic":"mail","due_to":"0001-01-01T00:00:00Z"}}`:   "due_to",
		`{"action":"cancel","filter":{"topic":"mail"},"began_at":"2100-01-01T00:00:00Z"}`: "began_at",
		`{"action":"cancel","filter":{"topic":"mail"},"limit":92233720368547758}`:         "limit",
	} {
		a := s.do("POST", "/v1/admin/messages/bulk", body)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", body, a.body)
		_, fields := a.problem(t)
		require.Equal(t, []string{field}, fields, body)
	}
}

// The order is what was promised: its message follows it, and not the other way round.
func TestActions_LeaveThePromisesOfOrdersAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "10")
	no := s.place()
	expire, err := s.store.Lookup(t.Context(), model.TopicExpire, no)
	require.NoError(t, err)
	path := fmt.Sprintf("/v1/admin/messages/%d/", expire.ID)
	before := s.contents(t.Context())
	for action, instead := range map[string]string{
		"cancel": "cancel the order instead", "reschedule": "move the order's due time instead", "publish-now": "to close it before, cancel the order",
	} {
		body := ""
		if action == "reschedule" {
			body = `{"delay":"1h"}`
		}
		a := s.do("POST", path+action, body)
		require.Equal(t, http.StatusConflict, a.status, "%s: %s", action, a.body)
		kind, _ := a.problem(t)
		require.Equal(t, "message-protected", kind)
		require.Contains(t, string(a.body), instead)
	}
	a := s.do("POST", "/v1/admin/messages/bulk", `{"action":"cancel","filter":{"topic":"order.expire"}}`)
	require.InDelta(t, 1, a.json(t)["protected"], 0)
	require.Contains(t, a.json(t)["why"], "order "+no+" is pending and this message closes it; cancel the order instead")
	require.Equal(t, before, s.contents(t.Context()))

	// Once it is late it may be pushed: its due time stays what it was, so that an audit finds nothing.
	s.exec("UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) - INTERVAL 60 SECOND, available_at = UTC_TIMESTAMP(6) + INTERVAL 500 SECOND, attempts = 5 WHERE id = ?", expire.ID)
	s.exec("UPDATE orders SET due_at = (SELECT due_at FROM outbox_messages WHERE id = ?)", expire.ID)
	require.Equal(t, http.StatusOK, s.do("POST", path+"publish-now", "").status)
	rec, err := outbox.NewReconciler(s.store, outbox.ReconcileConfig{Checks: s.orders.Checks()})
	require.NoError(t, err)
	report, err := rec.Run(t.Context(), outbox.Scope{Audit: true, DryRun: true})
	require.NoError(t, err)
	require.Zero(t, report.Found(), "%v", report.Findings)

	// A message that is left of a finished order, or of none, is nobody's promise.
	s.exec("UPDATE orders SET status = 'paid', paid_at = UTC_TIMESTAMP(6)")
	require.Equal(t, http.StatusOK, s.do("POST", path+"cancel", "").status)
	stray := s.message(outbox.Message{Topic: model.TopicExpire, Key: "no-order", Delay: time.Hour})
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/admin/messages/"+stray+"/cancel", "").status)
}

func TestAdmin_ShowsOrdersRunsAndKeptDeliveries(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "10")
	no := s.place()
	second := s.place()
	require.Equal(t, []any{second, no}, column(rows(t, s.get("/v1/admin/orders"), "orders"), "no"))
	require.Equal(t, []any{no}, column(rows(t, s.get("/v1/admin/orders?no="+no+"&user=ann&status=pending"), "orders"), "no"))
	for _, query := range []string{"no=absent", "no=" + no + "&user=bob", "no=" + no + "&status=paid", "user=bob"} {
		require.Empty(t, rows(t, s.get("/v1/admin/orders?"+query), "orders"), query)
	}
	require.Equal(t, http.StatusBadRequest, s.do("GET", "/v1/admin/orders?no=a%20b", "").status)
	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/admin/orders/absent", "").status)
	both := s.get("/v1/admin/orders/" + no)
	messages, _ := both["messages"].(map[string]any)
	expire, _ := messages["expire"].(map[string]any)
	require.Equal(t, "scheduled", expire["state"])
	require.Equal(t, no, expire["key"])
	require.Nil(t, messages["remind"], "this shop reminds nobody")
	s.message(outbox.Message{Topic: model.TopicRemind, Key: no})
	s.effect(model.TopicRemind, no, func(*sql.Tx, outbox.Delivery) error { return nil })
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/orders/"+no+"/cancel", "").status)
	messages, _ = s.get("/v1/admin/orders/" + no)["messages"].(map[string]any)
	expire, _ = messages["expire"].(map[string]any)
	remind, _ := messages["remind"].(map[string]any)
	require.Equal(t, "canceled", expire["state"])
	require.Equal(t, "done", remind["state"])
	require.Positive(t, remind["lateness_ms"])

	for range 3 {
		id, err := s.store.RequestRun(t.Context(), outbox.Scope{})
		require.NoError(t, err)
		rec, err := outbox.NewReconciler(s.store, outbox.ReconcileConfig{})
		require.NoError(t, err)
		report, err := rec.RunRequested(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, report.Run)
	}
	page := s.get("/v1/admin/reconcile?limit=2")
	require.Equal(t, []any{"3", "2"}, column(rows(t, page, "runs"), "id"))
	require.Equal(t, []any{"1"}, column(rows(t, s.get("/v1/admin/reconcile?limit=2&after="+fmt.Sprint(page["next"])), "runs"), "id"))

	for i, payload := range []string{"text", "\xff"} {
		require.NoError(t, s.store.Keep(t.Context(), outbox.Stray{
			Reason: "malformed", Detail: "no id", MessageID: "a\xff", RoutingKey: "t", Headers: []byte([]string{`{"a":1}`, `{"a`}[i]), Payload: []byte(payload),
		}))
	}
	kept := rows(t, s.get("/v1/admin/unrouted"), "deliveries")
	require.Equal(t, []any{"/w==", nil}, column(kept, "payload_base64"))
	require.Equal(t, []any{nil, "text"}, column(kept, "payload"))
	require.Equal(t, []any{nil, map[string]any{"a": 1.0}}, column(kept, "headers"))
	require.Len(t, rows(t, s.get("/v1/admin/unrouted?limit=1"), "deliveries"), 1)
}

// What the first page says is what the rows say.
func TestOverview_SaysWhatTheRowsSay(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	for i := range 40 {
		s.message(outbox.Message{Topic: "mail", Delay: time.Duration(i)*time.Minute + 30*time.Second})
	}
	v := s.get("/v1/admin/overview")
	verdict, _ := v["verdict"].(map[string]any)
	require.InDelta(t, 0, verdict["late"], 0)
	counts, _ := v["counts"].(map[string]any)
	require.Equal(t, map[string]any{"count": 40.0, "more": false}, counts["scheduled"])
	sum := 0.0
	for _, m := range rows(t, v, "due_next_hour") {
		n, _ := m["count"].(float64)
		sum += n
	}
	require.InDelta(t, 40, sum, 0)
	s.message(outbox.Message{Topic: "mail", Delay: time.Minute})
	again := s.get("/v1/admin/overview")
	require.Equal(t, v["now"], again["now"], "it is read once in two seconds")
	require.Eventually(t, func() bool {
		counts, _ := s.get("/v1/admin/overview")["counts"].(map[string]any)
		scheduled, _ := counts["scheduled"].(map[string]any)
		return scheduled["count"] == 41.0
	}, 20*time.Second, 50*time.Millisecond)
}

// A schema that is older than the program is told, whatever was asked.
func TestOperator_MissingTablesAreNoFaultOfOurs(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.exec("DROP TABLE outbox_audit")
	a := s.do("GET", "/v1/admin/audit", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, string(a.body), "run duebox migrate")
}
