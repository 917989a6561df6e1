package chaos_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "duebox-chaos-test-")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	// The proxy's own: a link that is removed while it has something to pass on leaves it behind, in v2.5.0.
	leaks := goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")
	goleak.VerifyTestMain(m, leaks, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var built struct {
	dir string
	mu  sync.Mutex
}

// program builds duebox once for all tests.
func program(t *testing.T) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	path := filepath.Join(built.dir, "duebox")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "../../cmd/duebox").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
