package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const patience = 2 * time.Minute // a machine may have much else to do

// tab is a page in a profile of its own. It fails its test if the page writes an error to the console, breaks its content
// security policy, throws, or asks any server but the one that it came from.
type tab struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // a tab is known by its context
	base string

	mu     sync.Mutex
	faults []string
	asked  int // requests of /v1/admin
}

func newTab(t *testing.T, base string) *tab {
	t.Helper()
	chromium, err := browser()
	require.NoError(t, err)
	p := &tab{t: t, base: base}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed-" + strings.NewReplacer("/", "-").Replace(t.Name()))
			text, err := chromedp.Run(p.limited(), chromedp.Evaluate[string]("document.body.innerText"))
			t.Logf("the page says (%v):\n%s", err, text)
		}
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.faults)
	})
	require.NoError(t, chromedp.Do(ctx))
	p.look(1280, false)
	_, err = chromedp.Call(p.limited(), emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"})
	require.NoError(t, err)
	return p
}

// listen notes what must not happen. The browser itself says in the console that an answer was an error or did not come, which is
// no fault of the page if it was the API's.
func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := func(format string, args ...any) { p.faults = append(p.faults, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.base) && !strings.HasPrefix(e.Request.URL, "data:") && e.Request.URL != "about:blank" {
			fault("asked for %s", e.Request.URL)
		}
		if strings.Contains(e.Request.URL, "/v1/admin/") {
			p.asked++
		}
	case *log.EventEntryAdded:
		api := strings.Contains(e.Entry.URL, "/v1/admin/") || strings.HasSuffix(e.Entry.URL, "/ui/session")
		if e.Entry.Level != "verbose" && e.Entry.Level != "info" && (!api || e.Entry.Source != "network") {
			fault("%s: %s: %s (%s)", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		fault("exception: %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		fault("console.%s: %v", e.Type, e.Args)
	}
}

// limited is the tab's context with a deadline; what is asked of the browser takes no longer.
func (p *tab) limited() context.Context {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	p.t.Cleanup(cancel)
	return ctx
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.limited(), steps...))
}

// look sets the size of the window, and whether its user likes it dark.
func (p *tab) look(width int64, dark bool) {
	p.t.Helper()
	height, scheme := int64(900), "light"
	var options []chromedp.EmulateViewportOption
	if width < 800 {
		height = 812
		options = append(options, chromedp.EmulateMobile)
	}
	if dark {
		scheme = "dark"
	}
	p.do(chromedp.EmulateViewport(width, height, options...))
	_, err := chromedp.Call(p.limited(), emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	require.NoError(p.t, err)
}

// open loads the page, as from a link that somebody was sent.
func (p *tab) open(hash string) {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.base+"/ui/"+hash))
}

// logIn opens the page and logs in as ana, with the keyboard.
func (p *tab) logIn() {
	p.t.Helper()
	p.open("")
	p.wait(`document.activeElement?.name === "name"`)
	p.do(chromedp.KeyEvent("ana\t" + adminToken + "\r"))
	p.wait(`document.querySelector("#verdict")`)
}

// move goes to another view in the page that is open.
func (p *tab) move(hash string) {
	p.t.Helper()
	eval[chromedp.Void](p, `void (location.hash = `+quoted(hash)+`)`)
	p.settled()
}

// settled waits until the view has its answer.
func (p *tab) settled() {
	p.t.Helper()
	p.wait(`document.querySelector("main h1") && document.querySelector("main[data-view]:not([aria-busy])")?.dataset.view === location.hash`)
}

// wait waits until an expression is true.
func (p *tab) wait(expression string) {
	p.t.Helper()
	await[bool](p, "Boolean("+expression+")")
}

// see waits until an element contains a text.
func (p *tab) see(selector, text string) {
	p.t.Helper()
	p.wait(`document.querySelector(` + quoted(selector) + `)?.innerText.includes(` + quoted(text) + `)`)
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, `document.querySelector(`+quoted(selector)+`).innerText`)
}

// texts are those of all elements that a selector finds.
func (p *tab) texts(selector string) []string {
	p.t.Helper()
	return eval[[]string](p, `[...document.querySelectorAll(`+quoted(selector)+`)].map((e) => e.innerText.trim())`)
}

// click clicks in the middle of the first element that the selector finds, once it is there and nothing covers it.
func (p *tab) click(selector string) {
	p.t.Helper()
	at := await[[]float64](p, `(() => {
		const element = document.querySelector(`+quoted(selector)+`)
		element?.scrollIntoView({block: "center"})
		const box = element?.getBoundingClientRect()
		const middle = box ? [box.x + box.width / 2, box.y + box.height / 2] : null
		return middle && element.contains(document.elementFromPoint(...middle)) && middle
	})()`)
	p.do(chromedp.MouseClickXY(at[0], at[1]))
}

// fill sets fields of the form that a selector finds, by name.
func (p *tab) fill(form string, values map[string]string) {
	p.t.Helper()
	for name, value := range values {
		eval[chromedp.Void](p, `{
			const field = document.querySelector(`+quoted(form)+`).elements.namedItem(`+quoted(name)+`)
			field.value = `+quoted(value)+`
			field.dispatchEvent(new Event("change", {bubbles: true}))
		}`)
	}
}

// press sends keys to whatever has the focus.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

func (p *tab) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// screenshots is where pictures of the page are put, for people.
const screenshots = "../../.tmp/screenshots"

func (p *tab) screenshot(name string) {
	p.t.Helper()
	picture, err := chromedp.Run(p.limited(), chromedp.FullScreenshot(100))
	require.NoError(p.t, err)
	require.NoError(p.t, os.MkdirAll(screenshots, 0o750))
	path, err := filepath.Abs(filepath.Join(screenshots, name+".png"))
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, picture, 0o600))
	p.t.Log(path)
}

// await is the first value of an expression that counts as true.
func await[T any](p *tab, expression string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.limited(), chromedp.Poll[T](expression, chromedp.WithPollingInterval(30*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	require.NoError(p.t, err, expression)
	return value
}

func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.limited(), chromedp.Evaluate[T](expression))
	require.NoError(p.t, err, expression)
	return value
}

// evalPromise waits for what a promise comes to.
func evalPromise[T any](p *tab, expression string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.limited(), chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, expression)
	return value
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always encodes
	return string(text)
}
