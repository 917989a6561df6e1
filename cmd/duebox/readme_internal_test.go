package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// blocks are the README's n blocks of code in a language.
func blocks(t *testing.T, language string, n int) (all []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, rest := range strings.Split(string(readme), "```"+language+"\n")[1:] {
		code, _, found := strings.Cut(rest, "```")
		require.True(t, found)
		all = append(all, code)
	}
	require.Len(t, all, n)
	return all
}

// TestREADME_HTTPExamplesWork pastes them into a shell, with a curl of our own: the machine may have none.
func TestREADME_HTTPExamplesWork(t *testing.T) {
	t.Parallel()
	address := devtest.Address(t)
	startProcess(t, []string{"MYSQL_DSN=" + devtest.Database(t), "HTTP_ADDR=" + address, "API_TOKEN=secret"}, "api")
	require.Eventually(t, func() bool { return request(t, http.MethodGet, "http://"+address+"/readyz", "", nil) == http.StatusOK }, patience, 50*time.Millisecond)

	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "curl")))
	script := strings.Join(blocks(t, "sh", 2), "")
	for line, value := range map[string]string{"BASE=http://127.0.0.1:8080\n": "BASE=http://" + address + "\n", "TOKEN=\n": "TOKEN=secret\n"} {
		require.Contains(t, script, line)
		script = strings.Replace(script, line, value, 1)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eu")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, answers, 16, "%s", out) // a 204 says nothing
	for i, part := range []string{
		`"available":100`, `"status":"pending"`, `{"orders":[{`, `"status":"paid"`, `"status":"closed","close_reason":"user"`,
		`.000000Z","created_at"`, `"available":96,"reserved":2,"sold":2`,
		`"state":"scheduled","generation":1`, `"status":412`, `"generation":2,"due_at":"2035-01-01T00:00:00.000000Z"`, `"generation":3`, `"key":"cart-42"`,
		`"state":"run"`, `"state":"done"`, `"state":"done","generation":3`, `"state":"scheduled","generation":1`,
	} {
		require.Contains(t, answers[i], part)
	}
}

// curl does what the README asks of curl: -sS, -X, -H, -d and a URL.
func curl(args []string) int {
	method, url, body, header := http.MethodGet, "", "", http.Header{}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-sS":
		case "-X", "-H", "-d":
			i++
			switch args[i-1] {
			case "-X":
				method = args[i]
			case "-d":
				body = args[i]
			default:
				name, value, _ := strings.Cut(args[i], ": ")
				header.Set(name, value)
			}
		default:
			url = args[i]
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 2
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 7
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return 18
	}
	return 0
}

// TestREADME_ExamplesCompile builds the README's Go code, as the bodies of functions.
func TestREADME_ExamplesCompile(t *testing.T) {
	t.Parallel()
	code := blocks(t, "go", 3)
	require.LessOrEqual(t, strings.Count(code[0], "\n"), 20)

	dir := t.TempDir()
	source := filepath.Join(dir, "example.go")
	require.NoError(t, os.WriteFile(source, []byte(`package example

import (
	"context"
	"database/sql"
	"io/fs"
	"time"

	"github.com/duebox/duebox/client"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"github.com/pressly/goose/v3"
	"gorm.io/gorm"
)

func Example(ctx context.Context, db *gorm.DB, cart string, remind func(tx *gorm.DB, key string) error) error {
`+code[0]+`
	return err
}

func Migrate(ctx context.Context, sqlDB *sql.DB) error {
`+code[1]+`
	return err
}

func Put(ctx context.Context, token string) error {
`+code[2]+`
	_, _ = message, replaced
	return err
}
`), 0o600))
	here, err := filepath.Abs("readme_example/example.go") // it needs to be in the module, and is so for the compiler only
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {here: source}})
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay="+overlayFile, "./readme_example").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
