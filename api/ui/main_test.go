package ui_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"
)

// TestMain ends the browser that the tests share, and then looks for goroutines that are left.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := quit(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "end the browser:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// quit ends the browser, if one was started.
var quit = func() error { return nil }

// browser is a headless Chromium that all tests share: each has a profile of its own in it.
var browser = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("%w; run scripts/setup.sh", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("force-color-profile", "srgb"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	quit = func() error {
		defer free()
		end, done := context.WithTimeout(ctx, 20*time.Second)
		defer done()
		return chromedp.Cancel(end)
	}
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return ctx, nil
})
