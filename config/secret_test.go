package config_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/config"
)

// marker stands in every secret of these tests and must stand nowhere else.
const marker = "hunter2-marker"

func secrets(extra string) []string {
	return []string{
		"MYSQL_DSN=user:" + marker + extra + "@tcp(db:3306)/app",
		"AMQP_URL=amqp://user:" + marker + extra + "@mq",
		"ADMIN_TOKEN=" + marker + extra,
		"API_TOKEN=api-" + marker + extra,
		"JWT_SECRET=" + marker + marker + marker + extra,
	}
}

// shown is c in every way that somebody might print it.
func shown(t *testing.T, c config.Config) string {
	t.Helper()
	var b bytes.Buffer
	hidden := struct {
		c config.Config
		p *config.Config
		s config.Secret
	}{c, &c, c.APIToken}
	for _, value := range []any{c, &c, hidden, c.MySQLDSN, &c.AMQPURL, []config.Secret{c.AdminToken}, map[string]config.Secret{"k": c.APIToken}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "% X", "%d", "%T", "%10.3v"} {
			fmt.Fprintf(&b, verb+"\n", value)
		}
		fmt.Fprintln(&b, value)
		slog.New(slog.NewTextHandler(&b, nil)).Info("text", "value", value)
		slog.New(slog.NewJSONHandler(&b, nil)).Info("json", "value", value)
		require.NoError(t, json.NewEncoder(&b).Encode(value))
	}
	b.WriteString(c.MySQLDSN.String())
	require.NoError(t, xml.NewEncoder(&b).Encode(c))
	return b.String()
}

func TestSecret_IsNeverShown(t *testing.T) {
	t.Parallel()
	c, err := config.Load(secrets(""))
	require.NoError(t, err)
	require.Contains(t, c.MySQLDSN.Reveal(), marker, "or this test shows nothing")
	output := shown(t, c)
	require.NotContains(t, output, marker)
	require.NotContains(t, output, fmt.Sprintf("%x", marker))
	require.NotContains(t, strings.ReplaceAll(output, " ", ""), fmt.Sprintf("%X", marker))
	require.Equal(t, "{***}", fmt.Sprint(struct{ S config.Secret }{c.APIToken}))
	require.Equal(t, "{}", fmt.Sprint(struct{ S config.Secret }{}))
}

func TestSecret_IsNotInTheErrors(t *testing.T) {
	t.Parallel()
	_, err := config.Load([]string{
		"MYSQL_DSN=mysql://user:" + marker + "@h/db", "AMQP_URL=amqp://user:" + marker + "%zz@mq",
		"ADMIN_TOKEN=" + marker + " ", "API_TOKEN_FILE=" + marker,
	})
	require.Len(t, strings.Split(err.Error(), "\n"), 4)
	require.NotContains(t, err.Error(), marker)
	require.NotContains(t, fmt.Sprintf("%#v", err), marker)
}

func TestSecret_EachHasAFileTwin(t *testing.T) {
	t.Parallel()
	for field := range reflect.TypeFor[config.Config]().Fields() {
		if field.Type != reflect.TypeFor[config.Secret]() {
			continue
		}
		_, err := config.Load([]string{field.Tag.Get("env") + "_FILE=/does/not/exist"})
		require.ErrorContains(t, err, field.Tag.Get("env")+"_FILE: ")
	}
}

// FuzzLoad gives any variable any value. Whatever it is, each problem is one line that names its variable, the
// secrets stay hidden, and what loads is within its bounds.
func FuzzLoad(f *testing.F) {
	variables := variableNames()
	for i, value := range []string{"127.0.0.1:80", "1h", "7", "a@b/c", "amqp://h\x00", "@every 1s", "true", "\xff\n"} {
		f.Add(uint8(i), value, "")
		f.Add(uint8(i+8), value, "p@ss/w:rd")
	}
	f.Fuzz(func(t *testing.T, which uint8, value, extra string) {
		name := variables[int(which)%len(variables)]
		c, err := config.Load(append(secrets(extra), name+"="+value))
		if err != nil {
			require.NotContains(t, err.Error(), marker)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				named, _, found := strings.Cut(line, ": ")
				require.True(t, found, line)
				require.Contains(t, variables, strings.TrimSuffix(named, "_FILE"))
			}
			return
		}
		require.NotContains(t, shown(t, c), marker)
		require.Positive(t, c.Horizon)
		require.LessOrEqual(t, c.Horizon.Milliseconds(), int64(1<<32-1))
		require.Positive(t, min(c.Grace, c.DrainTimeout, c.OrderTimeoutNormal, c.OrderTimeoutFlash, c.OrderTimeoutPresale, c.Retention))
		require.Positive(t, min(c.MaxAttempts, c.Prefetch+1, c.Workers))
		require.Regexp(t, `^[A-Za-z0-9._-]{1,64}$`, c.Namespace)
	})
}

func variableNames() []string {
	var names []string
	for field := range reflect.TypeFor[config.Config]().Fields() {
		names = append(names, field.Tag.Get("env"))
	}
	return names
}
