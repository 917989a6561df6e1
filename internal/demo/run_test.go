package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/duebox/duebox/internal/demo"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "duebox-demo-test-")
	if err != nil {
		panic(err)
	}
	programs.dir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// programs are builds of cmd/duebox, by their tags.
var programs struct {
	dir string
	mu  sync.Mutex
}

// program builds duebox once for all tests.
func program(t *testing.T, tags string) string {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	path := filepath.Join(programs.dir, "duebox"+tags)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags="+tags, "-o", path, "../../cmd/duebox").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func firstWith(all []string, part string) string {
	for _, s := range all {
		if strings.Contains(s, part) {
			return s
		}
	}
	return part
}

// play runs a demo whose broker is made to deliver everything that it holds a second time.
func play(t *testing.T, o demo.Options) (result demo.Result, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o.Dir, o.Stdout, o.Stderr, o.JSON = t.TempDir(), &stdout, &stderr, true
	o.Disturb(func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, `UPDATE outbox_messages SET state = 'scheduled', revision = revision + 1,
			available_at = GREATEST(due_at, UTC_TIMESTAMP(6)) WHERE state = 'published'`)
		return err
	})
	err = demo.Run(t.Context(), o)
	require.Empty(t, filesOf(o.Dir, ""))
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	require.Greater(t, len(lines), 10, "no table: %s, %v", stderr.String(), err)
	last := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	last.DisallowUnknownFields()
	require.NoError(t, last.Decode(&result))
	t.Logf("%s\n%s", stdout.String(), stderr.String())
	return result, err
}

// orders makes an orders file of n orders: one third is never paid, one third at once, one third much too late.
func orders(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("order,placed_at,paid_after_s,items\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,2017-11-24T08:30:%02dZ,%s,P%dx2@9.99\n", i+1, i%60, []string{"", "0", "360000"}[i%3], i%7)
	}
	path := filepath.Join(t.TempDir(), "orders.csv")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

func TestRun_DropsWhatIsDeliveredTwice(t *testing.T) {
	t.Parallel()
	r, err := play(t, demo.Options{Program: program(t, ""), Timeout: 8 * time.Second, Rate: 20, OrdersFile: orders(t, 60)})
	require.NoError(t, err)
	require.Equal(t, []int{60, 20, 40, 0, 20}, []int{r.Orders, r.Paid, r.Closed, r.Pending, r.Refunded})
	require.Equal(t, []int{0, 0, 0}, []int{r.Lost, r.Early, r.DuplicateEffects})
	require.Positive(t, r.DuplicateDeliveries)
	require.True(t, r.StockConserved)
	require.Positive(t, r.LatenessMS.P50)
	require.GreaterOrEqual(t, r.LatenessMS.Max, r.LatenessMS.P99)
	require.Equal(t, "plugin", r.Strategy)
	require.Contains(t, []string{"plugin", "stand-in"}, r.Exchange)
	require.Greater(t, r.Seconds, 8.0)
}

// TestRun_SeesEffectsTwiceWithoutTheGuard is the same run with a build that lacks the guard: the check is no decoration.
func TestRun_SeesEffectsTwiceWithoutTheGuard(t *testing.T) {
	t.Parallel()
	r, err := play(t, demo.Options{Program: program(t, "duebox_noguard"), Timeout: 8 * time.Second, Rate: 20, OrdersFile: orders(t, 60)})
	require.ErrorIs(t, err, demo.ErrFound)
	require.ErrorContains(t, err, "effects happened twice")
	require.Positive(t, r.DuplicateEffects)
	require.GreaterOrEqual(t, r.DuplicateDeliveries, r.DuplicateEffects)
}

func TestRun_LosesNothingWithItsBroker(t *testing.T) {
	t.Parallel()
	r, err := play(t, demo.Options{Program: program(t, ""), Timeout: 5 * time.Second, Rate: 30, Orders: 120, KillBroker: true})
	require.NoError(t, err)
	require.Equal(t, []int{120, 0, 0, 0, 0}, []int{r.Orders, r.Pending, r.Lost, r.Early, r.DuplicateEffects})
	require.Positive(t, r.Closed)
	require.Positive(t, r.Refunded)
	require.True(t, r.StockConserved)
}

// What is placed by hand after the verdict does not change it.
func TestRun_StaysUpAfterItsVerdict(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr, console := io.Pipe()
	o := demo.Options{Program: program(t, ""), Orders: 3, Timeout: time.Second, Rate: 10, Keep: true, Dir: t.TempDir(), Stdout: io.Discard, Stderr: console}
	ended := make(chan error, 1)
	go func() {
		err := demo.Run(ctx, o)
		_ = console.Close()
		ended <- err
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	lines := bufio.NewReader(stderr)
	require.Contains(t, awaitLine(t, lines, "the check "), "found nothing wrong")
	url := strings.Fields(awaitLine(t, lines, "API  "))[1]
	awaitLine(t, lines, "all of it runs until")
	for _, r := range [][3]string{
		{http.MethodPut, "/v1/products/MUG", `{"name":"Mug","stock":5}`},
		{http.MethodPost, "/v1/orders", `{"kind":"normal","user":"ana","items":[{"sku":"MUG","quantity":1,"price":1}]}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r[0], url+r[1], strings.NewReader(r[2]))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Less(t, resp.StatusCode, 300)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	cancel()
	require.NoError(t, <-ended)
}

func TestRun_RefusesBadOptionsBeforeItStartsAnything(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("order,placed_at,paid_after_s,items\n1,2017-11-24T08:30:00Z,soon,\n"), 0o600))
	good := demo.Options{Orders: 1, Timeout: 5 * time.Second, Rate: 1}
	for want, change := range map[string]func(*demo.Options){
		"orders":  func(o *demo.Options) { o.Orders = -1 },
		"timeout": func(o *demo.Options) { o.Timeout = time.Millisecond },
		"rate":    func(o *demo.Options) { o.Rate = 0 },
		"no such file": func(o *demo.Options) {
			o.OrdersFile = filepath.Join(filepath.Dir(bad), "absent.csv")
		},
		"bad.csv: line 2, column 24 (paid_after_s)": func(o *demo.Options) { o.OrdersFile = bad },
	} {
		o := good
		change(&o)
		o.Dir = t.TempDir()
		require.ErrorContains(t, demo.Run(t.Context(), o), want)
		require.Empty(t, filesOf(o.Dir, ""))
	}
}
