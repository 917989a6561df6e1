package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/duebox/duebox/config"
	"github.com/stretchr/testify/require"
)

// root is the repository.
const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// program is duebox, built by TestMain from what lies here.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "check")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "duebox")
	cmd := exec.Command("go", "build", "-o", program, "./cmd/duebox")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return 1
	}
	return m.Run()
}

// understood makes sure that the program has the command and the flags.
func understood(t *testing.T, args ...string) {
	t.Helper()
	require.NotEmpty(t, args)
	output, err := exec.CommandContext(t.Context(), program, append(args, "--help")...).CombinedOutput()
	require.NoError(t, err, "%s: %s", args, output)
	require.Contains(t, string(output), "duebox "+args[0])
}

// variables are the environment variables that the program reads, and whether each holds a secret.
func variables() map[string]bool {
	all := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		if name := field.Tag.Get("env"); name != "" {
			all[name] = field.Type == reflect.TypeFor[config.Secret]()
		}
	}
	return all
}

// fits makes sure that a process with these variables would start: it knows all of them, and with a secret in each file that they name
// their values go together.
func fits(t *testing.T, at string, vars map[string]string, required ...string) {
	t.Helper()
	known := variables()
	var environ []string
	for name, value := range vars {
		if name == "GOMEMLIMIT" { // Go's own
			continue
		}
		plain, isFile := strings.CutSuffix(name, "_FILE")
		secret, found := known[plain]
		require.True(t, found, "%s: no setting is called %s", at, plain)
		require.Equal(t, secret, isFile, "%s: %s: a secret comes in a file, and nothing else does", at, name)
		if isFile {
			value = filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(value, []byte(sample(plain)+"\n"), 0o600))
		}
		environ = append(environ, name+"="+value)
	}
	_, err := config.Load(environ, required...)
	require.NoError(t, err, at)
}

// sample is a secret of the right form.
func sample(variable string) string {
	switch variable {
	case "MYSQL_DSN":
		return "duebox:secret@tcp(mysql:3306)/duebox"
	case "AMQP_URL":
		return "amqp://duebox:secret@rabbitmq:5672/"
	}
	return "0123456789abcdef-of-" + variable
}

// needs are the settings without which a command does not start.
func needs(command string) []string {
	switch command {
	case "worker", "reconcile":
		return []string{"MYSQL_DSN", "AMQP_URL"}
	}
	return []string{"MYSQL_DSN"}
}
