// Package tools_test shows that the depguard rules in .golangci.yml keep the rooms apart: each rule fires
// where it should, alone, and what a room is made of passes.
package tools_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const module = "github.com/duebox/duebox/"

// refused lists, by rule, files that break it: path -> import.
func refused() map[string]map[string]string {
	return map[string]map[string]string{
		"production": {
			"worker/p1/p.go":           "github.com/stretchr/testify/require",
			"bench/p2/p.go":            "log",
			"cmd/duebox/p3/p.go":       "github.com/stretchr/testify/suite",
			"internal/devenv/p4/p.go":  module + "internal/devenv/devtest",
			"api/p5/p.go":              module + "outbox/outboxtest",
			"internal/elsewhere/p6.go": "github.com/stretchr/testify/assert",
		},
		"one-assertion-package": {
			"model/a1/a_test.go":                "github.com/stretchr/testify/assert",
			"outbox/rabbitmq/a2/a_test.go":      "github.com/stretchr/testify/suite",
			"internal/devenv/devtest/a3/a.go":   "github.com/stretchr/testify/mock",
			"internal/ordering/a4/some_test.go": "github.com/stretchr/testify/mock",
		},
		"model-is-the-bottom": {
			"model/m1/m.go": "gorm.io/gorm",
			"model/m2/m.go": module + "outbox",
		},
		"config-is-the-bottom": {
			"config/c1/c.go": "github.com/robfig/cron/v3",
			"config/c2/c.go": module + "model",
		},
		"outbox-core": {
			"outbox/o1/o.go": "github.com/rabbitmq/amqp091-go",
			"outbox/o2/o.go": "github.com/gin-gonic/gin",
			"outbox/o3/o.go": module + "outbox/rabbitmq",
			"outbox/o4/o.go": module + "model",
			"outbox/o5/o.go": module + "internal/ordering",
			"outbox/o6/o.go": "github.com/prometheus/client_golang/prometheus",
		},
		"outbox-rabbitmq": {
			"outbox/rabbitmq/r1/r.go": "gorm.io/gorm",
			"outbox/rabbitmq/r2/r.go": module + "worker",
		},
		"outbox-outboxtest": {
			"outbox/outboxtest/t1/t.go": module + "outbox/rabbitmq",
			"outbox/outboxtest/t2/t.go": "github.com/rabbitmq/amqp091-go",
		},
		"client-needs-nobody": {
			"client/k1/k.go": module + "model",
			"client/k2/k.go": "github.com/cenkalti/backoff/v5",
		},
		"ui-is-the-bottom": {
			"api/ui/u1/u.go": "github.com/gin-gonic/gin",
			"api/ui/u2/u.go": module + "outbox",
		},
		"openapi-is-the-bottom": {
			"api/openapi/o1/o.go": module + "model",
			"api/openapi/o2/o.go": "github.com/gin-gonic/gin",
		},
		"api-stays-upstairs": {
			"api/a1/a.go": "github.com/rabbitmq/amqp091-go",
			"api/a2/a.go": module + "worker",
			"api/a3/a.go": module + "outbox/rabbitmq",
			"api/a4/a.go": module + "internal/ordering",
		},
		"worker-stays-upstairs": {
			"worker/w1/w.go": module + "api",
			"worker/w2/w.go": "github.com/gin-gonic/gin",
		},
		"ordering-knows-no-transport": {
			"internal/ordering/n1/n.go": "github.com/rabbitmq/amqp091-go",
			"internal/ordering/n2/n.go": "github.com/gin-gonic/gin",
			"internal/ordering/n3/n.go": module + "outbox/rabbitmq",
			"internal/ordering/n4/n.go": module + "api",
			"internal/ordering/n5/n.go": module + "worker",
			"internal/ordering/n6/n.go": module + "config",
		},
		"database-knows-no-rooms": {
			"internal/database/b1/b.go": module + "outbox",
			"internal/database/b2/b.go": module + "config",
			"internal/database/b3/b.go": "github.com/gin-gonic/gin",
		},
		"devenv-knows-no-product": {
			"internal/devenv/d1/d.go":         module + "api",
			"internal/devenv/d2/d.go":         module + "worker",
			"internal/devenv/devtest/d3/d.go": module + "outbox",
			"internal/devenv/d4/d.go":         module + "model",
			"internal/devenv/d5/d.go":         module + "config",
			"internal/devenv/d6/d.go":         module + "internal/ordering",
		},
		"child-is-the-bottom": {
			"internal/child/h1/h.go": module + "internal/devenv",
			"internal/child/h2/h.go": "gorm.io/gorm",
		},
		"watched-is-the-bottom": {
			"internal/watched/w1/w.go": module + "config",
			"internal/watched/w2/w.go": "gorm.io/gorm",
		},
		"plot-is-the-bottom": {
			"internal/plot/o1/o.go": module + "config",
			"internal/plot/o2/o.go": "github.com/gin-gonic/gin",
		},
		"loopback-is-the-bottom": {
			"internal/loopback/l1/l.go": module + "config",
			"internal/loopback/l2/l.go": "github.com/gin-gonic/gin",
		},
		"certs-is-near-the-bottom": {
			"internal/certs/k1/k.go": module + "config",
			"internal/certs/k2/k.go": "github.com/gin-gonic/gin",
		},
		"chaos-shares-nothing-with-the-product": {
			"internal/chaos/s1/s.go":      module + "outbox",
			"internal/chaos/s2/s_test.go": module + "internal/ordering",
			"internal/chaos/s3/s.go":      module + "model",
			"internal/chaos/s4/s.go":      module + "internal/database",
			"internal/chaos/s5/s.go":      "gorm.io/gorm",
		},
		"devenv-is-for-development": {
			"api/e1/e.go":               module + "internal/devenv",
			"worker/e2/e.go":            module + "internal/devenv",
			"internal/ordering/e3/e.go": module + "internal/devenv",
		},
		"the-top-is-nobodys-library": {
			"outbox/x3/x_test.go": module + "internal/demo",
			"worker/x1/x.go":      module + "cmd/duebox",
			"api/x2/x_test.go":    module + "bench",
			"internal/other/x.go": module + "bench",
			"config/x4/x_test.go": module + "internal/chaos",
		},
	}
}

// allowed lists what each room is made of: path -> imports.
func allowed() map[string][]string {
	return map[string][]string{
		"cmd/duebox/main.go":                 {"github.com/spf13/cobra", module + "api", module + "worker", module + "config", module + "internal/ordering", module + "internal/devenv", module + "internal/demo", module + "outbox", module + "outbox/rabbitmq"},
		"bench/bench.go":                     {module + "outbox", module + "outbox/rabbitmq", module + "internal/devenv", "github.com/rabbitmq/amqp091-go"},
		"client/client.go":                   {"net/http"},
		"config/config.go":                   {"os", "github.com/caarlos0/env/v11"},
		"model/model.go":                     {"errors", "encoding/json"},
		"api/api.go":                         {"github.com/gin-gonic/gin", "github.com/prometheus/client_golang/prometheus", module + "api/openapi", module + "api/ui", module + "internal/watched", module + "model", module + "outbox"},
		"api/openapi/openapi.go":             {"html/template", "github.com/goccy/go-yaml"},
		"api/ui/ui.go":                       {"embed", "io/fs"},
		"worker/worker.go":                   {"net/http", "github.com/robfig/cron/v3", module + "outbox", module + "outbox/rabbitmq", module + "internal/ordering", module + "model"},
		"internal/chaos/chaos.go":            {"database/sql", "github.com/Shopify/toxiproxy/v2", "github.com/rabbitmq/amqp091-go", module + "internal/child", module + "internal/devenv"},
		"internal/child/child.go":            {"os/exec"},
		"internal/watched/watched.go":        {"os"},
		"internal/loopback/loopback.go":      {"net/netip"},
		"internal/plot/plot.go":              {"encoding/xml"},
		"internal/certs/certs.go":            {"crypto/tls", module + "internal/watched"},
		"internal/database/database.go":      {"context", "gorm.io/gorm", "gorm.io/driver/mysql", "github.com/pressly/goose/v3/lock"},
		"internal/demo/demo.go":              {"net/http", module + "client", module + "internal/devenv"},
		"internal/ordering/ordering.go":      {"gorm.io/gorm", module + "outbox", module + "model"},
		"outbox/outbox.go":                   {"database/sql", "gorm.io/gorm", "gorm.io/gorm/clause", "github.com/go-sql-driver/mysql"},
		"outbox/rabbitmq/rabbitmq.go":        {"net", "github.com/rabbitmq/amqp091-go", "github.com/cenkalti/backoff/v5", module + "outbox"},
		"outbox/outboxtest/outboxtest.go":    {"testing", "github.com/stretchr/testify/require", module + "outbox"},
		"outbox/outbox_test.go":              {"github.com/stretchr/testify/require", module + "internal/devenv/devtest", module + "outbox/outboxtest", "gorm.io/driver/mysql"},
		"internal/devenv/devenv.go":          {"os/exec"},
		"internal/devenv/devtest/devtest.go": {"testing", "github.com/stretchr/testify/require", "gorm.io/gorm", module + "internal/devenv"},
	}
}

// TestRooms_EachRuleFiresAndFiresAlone lints one made-up module in which every file above is a package of its
// own, and compares the whole answer. The module lies below folders that are named like rooms: where a
// checkout lies must not matter.
func TestRooms_EachRuleFiresAndFiresAlone(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "api", "config", "model")
	imports := allowed()
	var expected []string
	for rule, files := range refused() {
		for path, imported := range files {
			require.NotContains(t, imports, path)
			imports[path] = []string{imported}
			expected = append(expected, fmt.Sprintf("%s: %s: %s", path, imported, rule))
		}
	}
	slices.Sort(expected)

	for _, name := range []string{".golangci.yml", "go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		put(t, filepath.Join(root, name), string(content))
	}
	for path, imported := range imports {
		put(t, filepath.Join(root, path), source(path, imported))
	}
	for _, imported := range slices.Concat(slices.Collect(maps.Values(imports))...) {
		if folder, own := strings.CutPrefix(imported, module); own {
			path := filepath.Join(folder, "imported.go")
			put(t, filepath.Join(root, path), source(path, nil))
		}
	}
	require.Equal(t, expected, findings(t, root))
}

// TestRooms_EachRuleIsTried fails when a rule is added without a file that breaks it.
func TestRooms_EachRuleIsTried(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../.golangci.yml")
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]any `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.ElementsMatch(t,
		slices.Collect(maps.Keys(config.Linters.Settings.Depguard.Rules)),
		slices.Collect(maps.Keys(refused())))
}

// findings lints the module at root with depguard alone and returns "path: import: rule" for each finding, sorted.
func findings(t *testing.T, root string) []string {
	t.Helper()
	linter, err := filepath.Abs("../.bin/golangci-lint")
	require.NoError(t, err)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", linter, "github.com/golangci/golangci-lint/v2/cmd/golangci-lint")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	run := exec.CommandContext(t.Context(), linter, "run", "--allow-parallel-runners", "--enable-only=depguard", "--issues-exit-code=0",
		"--output.text.path=stderr", "--output.json.path=stdout", "--show-stats=false", "./...")
	run.Dir = root
	var stderr strings.Builder
	run.Stderr = &stderr
	output, err = run.Output()
	require.NoError(t, err, stderr.String())
	var report struct {
		Issues []struct {
			Text string
			Pos  struct{ Filename string }
		}
	}
	require.NoError(t, json.Unmarshal(output, &report), string(output))
	message := regexp.MustCompile(`^import '(.+)' is not allowed from list '(.+?)'`)
	var found []string
	for _, issue := range report.Issues {
		parts := message.FindStringSubmatch(issue.Text)
		require.NotNil(t, parts, "not a finding of depguard: %s: %s", issue.Pos.Filename, issue.Text)
		found = append(found, fmt.Sprintf("%s: %s: %s", issue.Pos.Filename, parts[1], parts[2]))
	}
	slices.Sort(found)
	return found
}

// source is a file of the package that path asks for, importing what is given.
func source(path string, imports []string) string {
	text := "package " + filepath.Base(filepath.Dir(path))
	if strings.HasSuffix(path, "_test.go") {
		text += "_test"
	}
	text += "\n"
	for _, imported := range imports {
		text += fmt.Sprintf("\nimport _ %q\n", imported)
	}
	return text
}

func put(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
