package ui_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// audited is the newest entry of the audit table.
func (s *shop) audited() string {
	s.t.Helper()
	return s.value("SELECT COALESCE(MAX(CONCAT_WS(' ', actor, via, action, message_id)), '') FROM outbox_audit WHERE id = (SELECT MAX(id) FROM outbox_audit)")
}

func TestPage_ActsOnOneMessageOnceThatIsConfirmed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newTab(t, s.base)
	p.logIn()
	row := func(id string) string {
		return s.value("SELECT CONCAT_WS(' ', state, generation, attempts, TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(6), due_at)) FROM outbox_messages WHERE id = ?", id)
	}
	for _, test := range []struct {
		action, from string
		choose       map[string]string
		want         string
	}{
		{"requeue", asDead, nil, "scheduled 1 0 -3"},
		{"publish-now", "held = FALSE", nil, "scheduled 2 0 0"},
		{"reschedule", "held = FALSE", map[string]string{"delay": "1h"}, "scheduled 2 0 59"},
		{"reschedule", asDead, map[string]string{"delay": "", "due_at": time.Now().Add(150 * time.Minute).In(time.FixedZone("", 8*3600)).Format("2006-01-02T15:04:05")}, "scheduled 2 0 149"},
		{"cancel", asPublished, nil, "canceled 1 0 179"},
	} {
		id := s.put("mail.retry", test.action+strconv.Itoa(len(test.choose)), 3*time.Hour, test.from)
		before, said := row(id), s.audited()
		p.move("#/messages/" + id)
		p.see("#facts", id)
		p.click(`[data-action="` + test.action + `"]`)
		p.see("dialog", id)
		require.Equal(t, "Leave as it is", eval[string](p, "document.activeElement.innerText"), "a stray Enter does nothing")
		p.press("\r")
		p.wait(`!document.querySelector("dialog")`)
		require.Equal(t, before, row(id))
		require.Equal(t, said, s.audited())

		p.click(`[data-action="` + test.action + `"]`)
		p.fill("dialog form", test.choose)
		p.click("dialog button[type=submit]")
		p.see("#said", "Message "+id+" has been")
		require.Equal(t, test.want, row(id))
		require.Equal(t, "ana ui "+test.action+" "+id, s.audited())
		p.see("#state", s.value("SELECT state FROM outbox_messages WHERE id = ?", id))
		p.see("#story", "by ana")
	}
}

func TestPage_SaysWhyAnActionIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	order := s.fill()
	p := newTab(t, s.base)
	p.logIn()
	id := s.put("mail.retry", "gone", time.Hour)
	p.move("#/messages/" + id)
	p.click(`[data-action="cancel"]`)
	s.exec("UPDATE outbox_messages SET "+asDone+" WHERE id = ?", id)
	p.click("dialog button[type=submit]")
	p.see("dialog .error", "done")
	p.press("\u001b")
	p.wait(`!document.querySelector("dialog")`)

	// The order service's own message: an order that nothing closes is the very thing that must not be.
	id = s.value("SELECT id FROM outbox_messages WHERE topic = 'order.expire' AND live_key = ?", order)
	p.move("#/messages/" + id)
	p.click(`[data-action="cancel"]`)
	p.click("dialog button[type=submit]")
	p.see("dialog .error", "order")
	require.Equal(t, "scheduled", s.value("SELECT state FROM outbox_messages WHERE id = ?", id))
	require.Empty(t, s.audited())
}

func TestPage_ActsOnManyOnceTheyAreCounted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	p := newTab(t, s.base)
	p.logIn()
	p.move("#/dead?topic=mail.retry")
	require.Len(t, p.texts("table.list tbody tr"), 5)
	p.click("#bulk")
	p.see("dialog", "topic is mail.retry")
	p.click("dialog button[type=submit]")
	p.see("dialog h2", "Requeue 5 messages?")
	require.Equal(t, "5", s.value("SELECT COUNT(*) FROM outbox_messages WHERE state = 'dead'"), "so far they are counted only")
	p.click("dialog button[type=submit]")
	p.see("#said", "5 messages have been requeued.")
	require.Equal(t, "5", s.value("SELECT COUNT(*) FROM outbox_messages WHERE state = 'scheduled' AND topic = 'mail.retry'"))
	require.Equal(t, "5", s.value("SELECT COUNT(*) FROM outbox_audit WHERE action = 'requeue' AND actor = 'ana' AND via = 'ui'"))
	p.see(".empty", "No dead message matches")

	p.move("#/messages?topic=cart.remind&key_prefix=cart-00")
	p.wait(`document.querySelectorAll("table.list a.key").length === 10`)
	p.click("#bulk")
	p.click(`dialog [value="cancel"]`)
	p.click("dialog button[type=submit]")
	p.see("dialog h2", "Cancel 10 messages?")
	p.see("dialog button[type=submit]", "Cancel 10")
	p.click("dialog button[type=submit]")
	p.see("#said", "10 messages have been canceled.")
	require.Equal(t, "10", s.value("SELECT COUNT(*) FROM outbox_messages WHERE state = 'canceled' AND message_key LIKE 'cart-00_'"))
	require.Equal(t, "2", s.value("SELECT COUNT(*) FROM outbox_messages WHERE state = 'scheduled' AND message_key LIKE 'cart-01_'"), "no other")
}

// A bulk of more messages than one request changes is over those that were counted, and no others.
func TestPage_ActsOnManyInManyRequests(t *testing.T) {
	t.Parallel()
	const messages = 1050
	s := newShop(t)
	for i := range messages {
		s.put("mass", strconv.Itoa(i), time.Hour)
	}
	p := newTab(t, s.base)
	p.logIn()
	p.move("#/messages?topic=mass&state=scheduled")
	p.wait(`document.querySelectorAll("table.list a.key").length === 50`)
	p.click("#bulk")
	p.click(`dialog [value="reschedule"]`)
	p.click("dialog button[type=submit]")
	p.see("dialog h2", "Reschedule 1,050 messages?")
	late := s.put("mass", "came later", time.Minute)
	p.click("dialog button[type=submit]")
	p.see("#said", "1,050 messages have been rescheduled.")
	require.Equal(t, strconv.Itoa(messages), s.value("SELECT COUNT(*) FROM outbox_messages WHERE topic = 'mass' AND generation = 2"))
	require.Equal(t, strconv.Itoa(messages), s.value("SELECT COUNT(*) FROM outbox_audit WHERE action = 'reschedule'"))
	require.Equal(t, "1", s.value("SELECT generation FROM outbox_messages WHERE id = ?", late))
}
