package main

import (
	"database/sql"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

// examined runs the doctor and returns its findings by check: state, what was found and advice.
func examined(t *testing.T, wantCode int, env ...string) map[string][3]string {
	t.Helper()
	code, stdout, stderr := execute(t, env, "doctor", "--json")
	require.Equal(t, wantCode, code, "%s%s", stdout, stderr)
	var all []struct{ Check, State, Found, Advice string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &all), stdout)
	found := map[string][3]string{}
	for _, f := range all {
		require.Equal(t, f.State == "ok", f.Advice == "", "%v: what is not well comes with advice", f)
		found[f.Check] = [3]string{f.State, f.Found, f.Advice}
	}
	return found
}

func TestDoctor_LooksAtAllOfIt(t *testing.T) {
	t.Parallel()
	env := []string{"MYSQL_DSN=" + devtest.Database(t), "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t)}
	before := examined(t, 1, env...)
	require.Equal(t, "fail", before["schema"][0])
	require.Equal(t, "run duebox migrate", before["schema"][2])

	code, _, stderr := execute(t, env, "migrate")
	require.Zero(t, code, stderr)
	found := examined(t, 0, append(env, "ADMIN_TOKEN=short")...)
	for _, check := range []string{
		"database version", "time zone", "isolation", "character set", "packet size", "connections", "privileges", "clock", "schema",
		"broker version", "broker permissions", "delayed exchange",
	} {
		require.Equal(t, "ok", found[check][0], "%s: %v", check, found[check])
	}
	require.Equal(t, "READ-COMMITTED", found["isolation"][1])
	require.Equal(t, "warn", found["ADMIN_TOKEN"][0])
	for _, queue := range []string{"queue of order.expire", "queue of order.remind"} {
		require.Equal(t, [3]string{"warn", "there is none", "start a worker, which makes it"}, found[queue])
	}
	require.Equal(t, [3]string{"warn", "nothing is late, but no worker runs", "see duebox outbox stats, and the operator's page"}, found["messages"])
	require.Equal(t, "warn", examined(t, 0, append(env, "API_TOKEN=0123456789abcdef")...)["ADMIN_TOKEN"][0], "the page is shut")
	code, stdout, _ := execute(t, env, "doctor")
	require.Zero(t, code)
	require.Contains(t, stdout, "ok    schema: up to date\n")
	require.Contains(t, stdout, "warn  queue of order.expire: there is none\n      start a worker, which makes it\n")

	admin := devtest.Open(t, strings.TrimPrefix(env[0], "MYSQL_DSN="))
	_, err := admin.ExecContext(t.Context(), "INSERT INTO goose_outbox (version_id, is_applied) VALUES (999912310000001, 1)")
	require.NoError(t, err)
	require.Equal(t, "warn", examined(t, 0, env...)["schema"][0], "a later version was here")
}

func TestDoctor_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dsn := devtest.MariaDB(t).DSN("test") // of its own, for a user more
	env := []string{"MYSQL_DSN=" + dsn, "AMQP_URL=" + devtest.AMQP(t), "NAMESPACE=" + devtest.Namespace(t)}
	code, _, stderr := execute(t, env, "migrate")
	require.Zero(t, code, stderr)

	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	admin := devtest.Open(t, dsn)
	for _, statement := range []string{"CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'pa55word'", "GRANT SELECT ON `t%`.* TO reader@'127.0.0.1'"} {
		_, err = admin.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	config.User, config.Passwd = "reader", "pa55word"
	found := examined(t, 1, "MYSQL_DSN="+config.FormatDSN(), env[1], env[2])
	require.Equal(t, [3]string{"fail", "lacks INSERT, UPDATE, DELETE", "GRANT SELECT, INSERT, UPDATE, DELETE on the database to the user of MYSQL_DSN"}, found["privileges"])
	require.Equal(t, "ok", found["schema"][0], "to read is enough to look")
	// A grant by name hides one by a pattern.
	_, err = admin.ExecContext(t.Context(), "GRANT INSERT ON test.* TO reader@'127.0.0.1'")
	require.NoError(t, err)
	found = examined(t, 1, "MYSQL_DSN="+config.FormatDSN(), env[1], env[2])
	require.Equal(t, "lacks SELECT, UPDATE, DELETE", found["privileges"][1])
	require.Equal(t, "fail", found["schema"][0])
	_, err = admin.ExecContext(t.Context(), "GRANT SELECT, INSERT, UPDATE, DELETE ON test.* TO reader@'127.0.0.1'")
	require.NoError(t, err)
	found = examined(t, 0, "MYSQL_DSN="+config.FormatDSN(), env[1], env[2])
	require.Equal(t, "warn", found["privileges"][0])
	require.Contains(t, found["privileges"][2], "MIGRATE_ON_START=false")
	require.Equal(t, "ok", examined(t, 0, "MYSQL_DSN="+config.FormatDSN(), env[1], env[2], "MIGRATE_ON_START=false")["privileges"][0])

	config.Passwd = "wr0ng"
	found = examined(t, 1, "MYSQL_DSN="+config.FormatDSN(), "AMQP_URL=amqp://a:wr0ng@127.0.0.1:1/")
	require.Equal(t, "fail", found["database"][0])
	require.Contains(t, found["database"][1], "Access denied")
	require.Equal(t, "fail", found["broker"][0])
	found = examined(t, 0, env[0])
	require.Equal(t, "warn", found["broker"][0], "it is not set")
	code, _, stderr = execute(t, append(env, "GRACE=soon"), "doctor")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "GRACE: ")
}

func TestMigrate_ShowsAndTakesBack(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	env := []string{"MYSQL_DSN=" + dsn}
	code, stdout, stderr := execute(t, env, "migrate", "status")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "migrations pending: ")
	require.Contains(t, stdout, "pending")
	code, stdout, stderr = execute(t, env, "migrate", "up")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^migrations applied: 1\d; schema is up to date\n$`, stdout)

	status := func(wantCode int) (pending []string) {
		code, stdout, stderr := execute(t, env, "migrate", "status", "--json")
		require.Equal(t, wantCode, code, stderr)
		var all []struct {
			Set, File string
			Version   int64
			AppliedAt *string `json:"applied_at"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &all))
		require.Greater(t, len(all), 15)
		for _, m := range all {
			if m.AppliedAt == nil {
				pending = append(pending, m.Set+"/"+m.File)
			}
		}
		return pending
	}
	require.Empty(t, status(0))
	code, _, stderr = execute(t, env, "migrate", "down", "orders")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "say --yes")
	code, stdout, _ = execute(t, env, "migrate")
	require.Zero(t, code)
	require.Equal(t, "schema is up to date\n", stdout)
	code, _, _ = execute(t, env, "migrate", "down", "--yes")
	require.Equal(t, 2, code)
	require.Empty(t, status(0))
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), "INSERT INTO outbox_relays (owner, seen_at) VALUES ('w', UTC_TIMESTAMP(6))")
	require.NoError(t, err)
	code, _, stderr = execute(t, env, "migrate", "down", "orders", "--yes")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the ledger is in use: stop all workers")
	require.Empty(t, status(0))
	_, err = db.ExecContext(t.Context(), "DELETE FROM outbox_relays")
	require.NoError(t, err)
	code, stdout, stderr = execute(t, env, "migrate", "down", "orders", "--yes")
	require.Zero(t, code, stderr)
	file, found := strings.CutPrefix(strings.TrimSpace(stdout), "taken back: ")
	require.True(t, found)
	require.Equal(t, []string{"orders/" + file}, status(1))
	code, _, stderr = execute(t, env, "migrate")
	require.Zero(t, code, stderr)
	require.Empty(t, status(0))
}

func TestConfig_ShowsWhereEachSettingComesFrom(t *testing.T) {
	t.Parallel()
	env := []string{"GRACE=5s", "DELAY_TIERS=1s,90m", "API_TOKEN=s3cret-token"}
	code, _, stderr := execute(t, append(env, "GRACE=soon"), "config")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "GRACE: ")
	code, stdout, stderr := execute(t, env, "config", "--json")
	require.Zero(t, code, stderr)
	var all []struct{ Name, Value, Source string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	found := map[string][2]string{}
	for _, s := range all {
		found[s.Name] = [2]string{s.Value, s.Source}
	}
	require.Equal(t, [2]string{"5s", "environment"}, found["GRACE"])
	require.Equal(t, [2]string{"1s,1h30m0s", "environment"}, found["DELAY_TIERS"])
	require.Equal(t, [2]string{"***", "environment"}, found["API_TOKEN"])
	require.Equal(t, [2]string{"", "default"}, found["ADMIN_TOKEN"])
	require.Equal(t, [2]string{"duebox", "default"}, found["NAMESPACE"])
	code, stdout, _ = execute(t, env, "config")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^GRACE +5s +environment$`, stdout)
	require.NotContains(t, stdout, "s3cret")
}

func TestCompletion_IsAScriptForEachShell(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, stdout, stderr := execute(t, nil, "completion", shell)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "duebox")
		if shell == "bash" {
			check := exec.CommandContext(t.Context(), "bash", "-n")
			check.Stdin = strings.NewReader(stdout)
			out, err := check.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	code, stdout, _ := execute(t, nil, "__complete", "migrate", "")
	require.Zero(t, code)
	for _, command := range []string{"up", "status", "down"} {
		require.Contains(t, stdout, command+"\t")
	}
}
