package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestPage_LetsInWhoKnowsTheToken(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newTab(t, s.base)
	p.open("#/dead")
	p.wait(`document.activeElement?.name === "name"`)
	p.press("ana\twrong\r")
	p.see("form .error", "not the admin token")
	require.Zero(t, p.requests(), "nothing is asked for without a session")
	p.press(adminToken + "\r")
	p.see("h1", "Dead")
	require.Equal(t, "#/dead", eval[string](p, "location.hash"), "where the reader was going")
	require.Empty(t, eval[string](p, "document.cookie"), "no script can read the session")
	require.NotContains(t, eval[string](p, "JSON.stringify([localStorage, sessionStorage])"), adminToken)
	p.see("#top", "ana")
	p.click("#top .who button")
	p.see("h1", "Log in")
	require.Equal(t, "ana", eval[string](p, `document.querySelector("[name=name]").value`), "the name is remembered")
}

func TestPage_SaysWhatTheDatabaseHolds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	p := newTab(t, s.base)
	p.logIn()
	for _, state := range []string{"scheduled", "published", "done", "canceled", "dead"} {
		p.see("#count-"+state+" .figure", s.value("SELECT COUNT(*) FROM outbox_messages WHERE state = ?", state))
	}
	p.see("#count-unrouted .figure", "1")
	p.see("#nav", "Dead\n5")
	p.see("#due .says", s.value(`SELECT COUNT(*) FROM outbox_messages WHERE state IN ('scheduled', 'published')
		AND due_at >= UTC_TIMESTAMP(6) AND due_at < UTC_TIMESTAMP(6) + INTERVAL 1 HOUR`)+" in the next hour")
	p.see("#lateness", "5 messages finished")
	p.see("#lateness tr:nth-child(2)", "≤ 10 ms")
	require.Equal(t, []string{"0", "5", "0", "0"}, p.texts("#lateness tbody td.number"))
	p.see("#workers", "shop-1")
	p.see("#workers", "the broker has no x-delayed-message exchange")
	p.see("#workers", "connected since")
	p.see("#workers", "cart.remind 4 ready, 2 consumers")
	p.see("#reconcile", "2 overdue, 2 mended")
	p.see("#verdict", "5 dead")
	p.screenshot("overview-test")

	s.put("cart.remind", "one-more", 10*time.Minute)
	p.see("#count-scheduled .figure", s.value("SELECT COUNT(*) FROM outbox_messages WHERE state = 'scheduled'"))
}

func TestPage_VerdictFollowsTheLedger(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.put("cart.remind", "cart-1", time.Hour)
	p := newTab(t, s.base)
	p.logIn()
	p.see("#verdict", "All on time")
	p.wait(`document.title.startsWith("On time")`)
	s.exec("UPDATE outbox_messages SET "+asLate+" WHERE id = ?", id)
	p.see("#verdict", "1 late, oldest 3 min")
	p.wait(`document.title.startsWith("1 late")`)
	require.Contains(t, eval[string](p, `document.querySelector("#favicon").href`), "data:", "the tab tells it, too")
	p.move("#/orders")
	p.see("#top .pill", "1 late")
	p.move("#/")
	p.click("#verdict .links a")
	p.see("table.list", "cart-1")
	s.exec("UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, available_at = due_at WHERE id = ?", id)
	p.see("#top .pill", "on time")
	p.move("#/")
	s.exec("UPDATE outbox_relays SET connected = FALSE, reason = 'connection refused', since = '2026-12-01 03:04:00'")
	p.see("#verdict .headline", "Nothing is late")
	p.see("#verdict .why", "roker unreachable since 11:04") // there
	p.see("#workers", "not connected")
}

func TestPage_FindsMessages(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	for i := range 120 {
		s.put("bulk.topic", fmt.Sprintf("row-%03d", i), time.Duration(i+90)*time.Minute)
	}
	p := newTab(t, s.base)
	p.logIn()
	p.move("#/messages")
	p.fill("form.search", map[string]string{"topic": "half-typ"})
	said := p.text("#top .live .at")
	p.wait(`document.querySelector("#top .live .at").innerText !== ` + quoted(said)) // other answers have been drawn
	require.Equal(t, "half-typ", eval[string](p, `document.querySelector("form.search [name=topic]").value`))
	search := func(fields map[string]string, want ...string) {
		p.click(`.search a`) // clear
		p.wait(`location.hash === "#/messages"`)
		p.settled()
		p.fill("form.search", fields)
		p.click(`form.search button[type=submit]`)
		p.wait(`location.hash !== "#/messages"`)
		p.settled()
		require.ElementsMatch(t, want, p.texts("table.list a.key"), fields)
	}
	search(map[string]string{"topic": "mail.retry", "state": "dead"}, "failed-0", "failed-1", "failed-2", "failed-3", "failed-4")
	search(map[string]string{"topic": "cart.remind", "key": "cart-007"}, "cart-007")
	search(map[string]string{"topic": "cart.remind", "how": "prefix", "key": "handed-"}, "handed-0", "handed-1", "handed-2", "handed-3", "handed-4")
	search(map[string]string{"error": "SAYS 451", "key": "failed-3"}, "failed-3")
	from := time.Now().Add(6 * time.Minute).In(time.FixedZone("", 8*3600)).Format("2006-01-02T15:04:05")
	to := time.Now().Add(14 * time.Minute).In(time.FixedZone("", 8*3600)).Format("2006-01-02T15:04:05")
	search(map[string]string{"topic": "cart.remind", "state": "scheduled", "due_from": from, "due_to": to}, "cart-001", "cart-002")

	p.move("#/messages?topic=bulk.topic&state=scheduled")
	seen := map[string]bool{}
	for page := 1; ; page++ {
		p.wait(`document.querySelectorAll("table.list a.key").length > 0`)
		rows := p.texts("table.list a.key")
		for _, key := range rows {
			require.False(t, seen[key], "twice: %s", key)
			seen[key] = true
		}
		if page == 3 {
			require.Len(t, rows, 20)
			break
		}
		require.Len(t, rows, 50)
		p.click("nav.pages a:last-child")
		p.wait(`!document.querySelector("table.list")?.innerText.includes(` + quoted(rows[0]) + `)`)
		p.settled()
	}
	require.Len(t, seen, 120)
	require.NoError(t, chromedp.Do(p.limited(), chromedp.NavigateBack()))
	p.wait(`document.querySelectorAll("table.list a.key").length === 50`)
	p.click(`nav.pages a`)
	p.see("table.list", "row-000")
}

func TestPage_TellsAMessagesStory(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	id := s.value("SELECT id FROM outbox_messages WHERE message_key = 'mailed-3'")
	p := newTab(t, s.base)
	p.logIn()
	p.open("#/messages/" + id) // from a link that a colleague has sent
	p.settled()
	p.see("h1", "mailed-3")
	require.Equal(t, []string{"Enqueued", "Due", "Published", "Finished"}, p.texts("#story .what"))
	p.see("#story li:last-child", "7 ms late")
	p.see("#payload", `"cart": "mailed-3"`)
	stamp := strings.Replace(s.value("SELECT DATE_FORMAT(finished_at, '%Y-%m-%d %H:%i:%s.%f') FROM outbox_messages WHERE id = ?", id), "T", " ", 1)
	at, err := time.Parse("2006-01-02 15:04:05.000000", stamp)
	require.NoError(t, err)
	require.Equal(t, stamp+" UTC", eval[string](p, `document.querySelector("#story li:last-child time").title`))
	p.see("#story li:last-child time", at.Add(8*time.Hour).Format("15:04:05.000")) // there it is eight hours later
	p.see("#story li:last-child time", "ago")
	require.Empty(t, p.texts("#actions button"), "nothing can be done to what is done")

	failed := s.value("SELECT id FROM outbox_messages WHERE message_key = 'failed-1'")
	p.move("#/messages/" + failed)
	p.see("#story li:last-child", "Died")
	p.see("#error", "mail server says 451 try again later")
	require.NoError(t, chromedp.Do(p.limited(), chromedp.NavigateBack()))
	p.see("h1", "mailed-3")
	p.move("#/messages/999999")
	p.see(".notice", "no message has this id")
}
