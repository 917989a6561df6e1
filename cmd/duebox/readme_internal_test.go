package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestREADME_ExampleCompiles builds the README's Go code, as the body of a function.
func TestREADME_ExampleCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	code, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	require.LessOrEqual(t, strings.Count(code, "\n"), 20)

	dir := t.TempDir()
	source := filepath.Join(dir, "example.go")
	require.NoError(t, os.WriteFile(source, []byte(`package example

import (
	"context"
	"time"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
	"gorm.io/gorm"
)

func Example(ctx context.Context, db *gorm.DB, cart string, remind func(tx *gorm.DB, key string) error) error {
`+code+`
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
