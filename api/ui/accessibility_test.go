package ui_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axe is the text of axe-core, installed into a folder of its own.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/axe")))
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", filepath.Join(dir, ".cache"))
	install.Dir = dir
	said, err := install.CombinedOutput()
	require.NoError(t, err, "npm ci: %s; is npm installed? run scripts/setup.sh", said)
	text, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	return string(text)
}

// violations are what axe finds, in a line each.
const violations = `axe.run(document, {resultTypes: ["violations"]}).then((result) => result.violations.flatMap((v) =>
	v.nodes.map((n) => v.id + ": " + n.html.slice(0, 200) + ": " + n.failureSummary)))`

// Each view at two widths, light and dark: accessible by axe's rules, and no wider than the window.
func TestPage_IsAccessibleInEveryView(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	order := s.fill()
	judge := axe(t)
	message := s.value("SELECT id FROM outbox_messages WHERE message_key = 'failed-1'")
	long := s.value("SELECT id FROM outbox_messages WHERE state = 'canceled' AND topic = 'mail.retry'")
	views := []struct{ name, hash string }{
		{"overview", "#/"},
		{"messages", "#/messages"},
		{"message", "#/messages/" + message},
		{"message-long-key", "#/messages/" + long},
		{"message-missing", "#/messages/999999"},
		{"orders", "#/orders"},
		{"order", "#/orders/" + order},
		{"runs", "#/runs"},
		{"run", "#/runs/1"},
		{"dead", "#/dead"},
		{"unrouted", "#/unrouted"},
		{"audit", "#/audit"},
		{"audit-empty", "#/audit?actor=nobody"},
		{"nowhere", "#/nowhere"},
	}
	for _, width := range []int64{1280, 375} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			p := newTab(t, s.base)
			p.open("")
			p.wait(`document.querySelector("form.login")`)
			eval[chromedp.Void](p, judge)
			check := func(name string) {
				t.Helper()
				for _, dark := range []bool{false, true} {
					p.look(width, dark)
					found := evalPromise[[]string](p, violations)
					require.Empty(t, found, "%s, dark: %t", name, dark)
					require.LessOrEqual(t, eval[int64](p, "document.documentElement.scrollWidth"), width, name)
					if dark == (width < 800) || name == "overview" { // a picture of each, not of all
						p.screenshot(fmt.Sprintf("%s-%d-%s", name, width, map[bool]string{false: "light", true: "dark"}[dark]))
					}
				}
			}
			check("login")
			p.press("ana\t" + adminToken + "\r")
			p.wait(`document.querySelector("#verdict")`)
			for _, view := range views {
				p.move(view.hash)
				check(view.name)
			}
			p.move("#/messages/" + message)
			p.click(`[data-action="reschedule"]`)
			check("dialog")
			p.press("\u001b")
			p.move("#/dead")
			p.click("#bulk")
			check("dialog-bulk")
		})
	}
}
