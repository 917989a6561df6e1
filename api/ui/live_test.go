package ui_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPage_ShowsOrdersRunsAndWhatIsKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	order := s.fill()
	p := newTab(t, s.base)
	p.logIn()
	p.move("#/orders?user=ana")
	require.Equal(t, []string{order}, p.texts("table.list a.key"))
	p.click("table.list a.key")
	p.see("#state", "pending")
	p.see("#messages", "order.expire")
	p.see("#messages", "order.remind")
	p.click("#messages a")
	p.see("h1", order)
	p.click(`#facts a[href="#/orders/` + order + `"]`)
	p.see("#state", "pending")
	require.NotContains(t, p.text("#facts"), "Late")
	s.exec("UPDATE orders SET due_at = UTC_TIMESTAMP(6) - INTERVAL 190 SECOND WHERE no = ?", order)
	p.see("#facts", "Late")
	p.move("#/orders?user=ana")
	p.see("table.list .warn", "3 min 1")

	p.move("#/runs")
	p.see("table.list", "2 overdue, 2 mended")
	p.click("#start")
	p.click(`dialog [value="audit"]`)
	p.click(`dialog [name="dry"]`)
	p.click("dialog button[type=submit]")
	p.see("#state", "requested")
	require.Equal(t, "audit 1", s.value("SELECT CONCAT_WS(' ', kind, dry_run) FROM outbox_reconcile_runs WHERE state = 'requested'"))
	s.exec("UPDATE outbox_reconcile_runs SET state = 'running', started_at = UTC_TIMESTAMP(6) WHERE state = 'requested'")
	p.see("#state", "running")

	p.move("#/unrouted")
	p.see("table.list", "belongs to store other")
	p.click("table.list summary")
	p.see("table.list", `"key": "cart-7"`)
	p.wait(`document.querySelector("table.list details").open`)
	s.exec("DELETE FROM outbox_unrouted")
	p.see(".empty", "Nothing to do here")

	id := s.value("SELECT id FROM outbox_messages WHERE message_key = 'cart-003'")
	p.move("#/messages/" + id)
	p.click(`[data-action="cancel"]`)
	p.click("dialog button[type=submit]")
	p.see("#state", "canceled")
	p.move("#/audit?actor=ana")
	require.Equal(t, []string{"cart-003"}, p.texts("table.list a.key"))
	p.see("table.list", "by this page")
	p.move("#/audit?actor=ben")
	p.see(".empty", "Nobody has done such a thing")
}

func TestPage_TellsThatTheServerIsAwayAndSinceWhen(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	p := newTab(t, s.base)
	p.logIn()
	p.see("#verdict", "dead")
	p.move("#/dead")
	p.see("table.list", "failed-0")
	p.click("form.search [name=topic]")
	p.press("mail.")
	s.stop()
	p.see("#away", "No answer from the server since")
	p.see("#away", "may be wrong by now")
	s.start()
	p.wait(`!document.querySelector("#away")`)
	require.Equal(t, "topic mail.", eval[string](p, "document.activeElement.name + ' ' + document.activeElement.value"), "what is being typed stays")
	s.stop()
	p.see("#away", "No answer from the server since")
	p.see("#top .pill", "unknown")
	p.wait(`document.title.startsWith("No answer")`)
	require.True(t, eval[bool](p, `getComputedStyle(document.querySelector("table.list")).opacity < 1`), "old figures do not look like new ones")
	p.click(`#nav a`)
	p.see("#verdict", "No answer from the server since")
	p.see("#verdict", "All figures below are from then")
	p.screenshot("away")

	s.exec("DELETE FROM outbox_messages WHERE state = 'dead'")
	s.start()
	p.see("#verdict", "All on time")
	p.see("#count-dead .figure", "0")
	require.Equal(t, "1", eval[string](p, `getComputedStyle(document.querySelector("#count-dead")).opacity`))
}

// The database being away is another fault than the server being away.
func TestPage_TellsThatThereAreNoFigures(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newTab(t, s.base)
	p.logIn()
	s.exec("RENAME TABLE outbox_messages TO elsewhere")
	p.see("#verdict", "No figures since")
	s.exec("RENAME TABLE elsewhere TO outbox_messages")
	p.see("#verdict", "All on time")
}

func TestPage_AsksNothingWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newTab(t, s.base)
	p.logIn()
	hide := func(hidden string) {
		eval[bool](p, `Object.defineProperty(document, "hidden", {value: `+hidden+`, configurable: true}) && document.dispatchEvent(new Event("visibilitychange"))`)
	}
	hide("true")
	var asked int
	require.Eventually(t, func() bool { // what was under way ends
		before := asked
		asked = p.requests()
		return before == asked
	}, patience, 500*time.Millisecond)
	s.put("cart.remind", "unseen", time.Hour)
	p.wait(`document.querySelector("#top .live.away")`) // its figures have become old, and it says so
	require.Equal(t, asked, p.requests())
	hide("false")
	p.see("#count-scheduled .figure", "1")
	p.wait(`!document.querySelector("#top .live.away")`)
}

func TestPage_IsUsedByKeyboard(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	p := newTab(t, s.base)
	p.logIn()
	p.open("#/dead")
	p.settled()
	p.press("\t")
	require.Equal(t, "Skip to content", eval[string](p, "document.activeElement.innerText"))
	p.press("\r")
	require.Equal(t, "main", eval[string](p, "document.activeElement.id"))
	p.wait(`document.querySelector("#bulk")`)
	p.press("\t\r") // the first thing after it
	p.see("dialog h2", "Act on all that match")
	p.press("\u001b")
	p.wait(`!document.querySelector("dialog")`)
	require.Equal(t, "bulk", eval[string](p, "document.activeElement.id"), "focus is back where it was")
	p.wait(`document.querySelector("#top .live .at").innerText !== ` + quoted(p.text("#top .live .at"))) // another answer has been drawn
	require.Equal(t, "bulk", eval[string](p, "document.activeElement.id"), "and stays there")

	p.look(375, false)
	p.click("#menu")
	p.wait(`document.querySelector("#menu").getAttribute("aria-expanded") === "true"`)
	p.press("\u001b")
	p.wait(`document.querySelector("#menu").getAttribute("aria-expanded") === "false" && document.activeElement.id === "menu"`)
}
