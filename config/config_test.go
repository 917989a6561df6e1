package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/config"
)

func TestLoad_DefaultsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	c, err := config.Load(nil)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(config.Config{
		HTTPAddr:            "127.0.0.1:8080",
		WorkerHTTPAddr:      "127.0.0.1:9090",
		Namespace:           "duebox",
		DelayStrategy:       config.StrategyAuto,
		DelayTiers:          []time.Duration{10 * time.Minute, 30 * time.Minute, 24 * time.Hour},
		Horizon:             10 * time.Minute,
		Grace:               30 * time.Second,
		MaxAttempts:         10,
		Prefetch:            0,
		Workers:             8,
		DrainTimeout:        20 * time.Second,
		OrderTimeoutNormal:  30 * time.Minute,
		OrderTimeoutFlash:   10 * time.Minute,
		OrderTimeoutPresale: 24 * time.Hour,
		OrderRemindBefore:   5 * time.Minute,
		ReconcileSchedule:   "* * * * *",
		AuditSchedule:       "17 3 * * *",
		Retention:           168 * time.Hour,
		MigrateOnStart:      true,
		RateLimit:           1000,
		RateLimitUnknown:    20,
	}, c, cmp.AllowUnexported(config.Secret{})))
}

func TestLoad_ReadsEachVariable(t *testing.T) {
	t.Parallel()
	c, err := config.Load([]string{
		"HTTP_ADDR=0.0.0.0:80", "WORKER_HTTP_ADDR=[::]:81", "MYSQL_DSN=u:p@tcp(db:3306)/app?charset=utf8mb4",
		"AMQP_URL=amqps://u:p@mq/v", "NAMESPACE=eu-1", "DELAY_STRATEGY=plugin", "DELAY_TIERS=1h,1s", "HORIZON=1193h", "GRACE=5s",
		"MAX_ATTEMPTS=3", "PREFETCH=65535", "WORKERS=1", "DRAIN_TIMEOUT=1m", "ORDER_TIMEOUT_NORMAL=1h",
		"ORDER_TIMEOUT_FLASH=1m30s", "ORDER_TIMEOUT_PRESALE=240h", "ORDER_REMIND_BEFORE=0", "RECONCILE_SCHEDULE=@every 5s", "AUDIT_SCHEDULE=@daily", "RETENTION=1h",
		"MIGRATE_ON_START=false", "ADMIN_TOKEN=an-admin-token-1", "API_TOKEN=an-api-token-111", "TLS_CERT_FILE=/c", "TLS_KEY_FILE=/k", "TLS_CLIENT_CA_FILE=/ca", "MYSQL_TLS_CA_FILE=/mca", "MYSQL_TLS_CERT_FILE=/mc", "MYSQL_TLS_KEY_FILE=/mk",
		"AMQP_TLS_CA_FILE=/aca", "AMQP_TLS_CERT_FILE=/ac", "AMQP_TLS_KEY_FILE=/ak", "JWT_JWKS_FILE=/keys", "JWT_ISSUER=https://id.example/", "JWT_AUDIENCE=shop", "RATE_LIMIT=0", "RATE_LIMIT_UNKNOWN=0.5", "UNKNOWN=ignored",
	}, "MYSQL_DSN", "AMQP_URL")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(config.Config{
		HTTPAddr:            "0.0.0.0:80",
		WorkerHTTPAddr:      "[::]:81",
		MySQLDSN:            config.NewSecret("u:p@tcp(db:3306)/app?charset=utf8mb4"),
		AMQPURL:             config.NewSecret("amqps://u:p@mq/v"),
		Namespace:           "eu-1",
		DelayStrategy:       config.StrategyPlugin,
		DelayTiers:          []time.Duration{time.Hour, time.Second},
		Horizon:             1193 * time.Hour,
		Grace:               5 * time.Second,
		MaxAttempts:         3,
		Prefetch:            65535,
		Workers:             1,
		DrainTimeout:        time.Minute,
		OrderTimeoutNormal:  time.Hour,
		OrderTimeoutFlash:   90 * time.Second,
		OrderTimeoutPresale: 240 * time.Hour,
		ReconcileSchedule:   "@every 5s",
		AuditSchedule:       "@daily",
		Retention:           time.Hour,
		AdminToken:          config.NewSecret("an-admin-token-1"),
		APIToken:            config.NewSecret("an-api-token-111"),
		TLSCertFile:         "/c",
		TLSKeyFile:          "/k",
		TLSClientCAFile:     "/ca",
		MySQLCAFile:         "/mca",
		MySQLCertFile:       "/mc",
		MySQLKeyFile:        "/mk",
		AMQPCAFile:          "/aca",
		AMQPCertFile:        "/ac",
		AMQPKeyFile:         "/ak",
		JWKSFile:            "/keys",
		JWTIssuer:           "https://id.example/",
		JWTAudience:         "shop",
		RateLimitUnknown:    0.5,
	}, c, cmp.AllowUnexported(config.Secret{})))
}

func TestLoad_ReadsNothingBesideWhatItIsGiven(t *testing.T) {
	t.Setenv("NAMESPACE", "from-the-process")
	c, err := config.Load(nil)
	require.NoError(t, err)
	require.Equal(t, "duebox", c.Namespace)
}

func TestLoad_EmptyIsNotSet(t *testing.T) {
	t.Parallel()
	c, err := config.Load([]string{"HORIZON=", "NAMESPACE=", "ADMIN_TOKEN=", "MYSQL_DSN_FILE="})
	require.NoError(t, err)
	require.Equal(t, 10*time.Minute, c.Horizon)
	require.Equal(t, "duebox", c.Namespace)
	require.False(t, c.AdminToken.IsSet())
}

func TestLoad_ReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Load([]string{
		"HTTP_ADDR=0.0.0.0:8080", "WORKER_HTTP_ADDR=9090", "AMQP_URL=http://u:hidden@mq", "NAMESPACE=a b",
		"DELAY_STRATEGY=magic", "DELAY_TIERS=10m,soon", "HORIZON=50d", "GRACE=-1s", "MAX_ATTEMPTS=0", "PREFETCH=65536", "WORKERS=many",
		"DRAIN_TIMEOUT=0", "ORDER_TIMEOUT_NORMAL=0s", "ORDER_TIMEOUT_FLASH=10", "ORDER_TIMEOUT_PRESALE=9000h",
		"RECONCILE_SCHEDULE=* * *", "AUDIT_SCHEDULE=nightly", "RETENTION=1ms", "MIGRATE_ON_START=maybe", "ADMIN_TOKEN=hidden\n", "API_TOKEN_FILE=/hidden",
	}, "MYSQL_DSN")
	require.Error(t, err)
	require.Equal(t, []string{
		`API_TOKEN_FILE: read the file: no such file or directory`,
		`MYSQL_DSN: is required`,
		`HTTP_ADDR: is "0.0.0.0:8080", want a loopback address such as 127.0.0.1:8080, or both ADMIN_TOKEN and API_TOKEN set`,
		`WORKER_HTTP_ADDR: is "9090", want host:port with a numeric port`,
		`AMQP_URL: want amqp://user:password@host:5672/vhost or amqps://, special characters percent-encoded`,
		`NAMESPACE: is "a b", want 1 to 64 of A-Z a-z 0-9 . _ - and not the broker's own prefix amq.`,
		`DELAY_STRATEGY: is "magic", want auto, plugin, hold or tiers`,
		`DELAY_TIERS: is "10m,soon", want 1 to 16 durations with commas between them and no spaces, such as 10m,30m,24h`,
		`HORIZON: is "50d", want a duration such as 90s or 1h30m, from 1ms to 1193h0m0s`,
		`GRACE: is "-1s", want a duration such as 90s or 1h30m, from 1ms to 24h0m0s`,
		`MAX_ATTEMPTS: is "0", want a whole number from 1 to 1000`,
		`PREFETCH: is "65536", want a whole number from 0 to 65535`,
		`WORKERS: is "many", want a whole number from 1 to 1024`,
		`DRAIN_TIMEOUT: is "0", want a duration such as 90s or 1h30m, from 1ms to 1h0m0s`,
		`ORDER_TIMEOUT_NORMAL: is "0s", want a duration such as 90s or 1h30m, from 1ms to 8760h0m0s`,
		`ORDER_TIMEOUT_FLASH: is "10", want a duration such as 90s or 1h30m, from 1ms to 8760h0m0s`,
		`ORDER_TIMEOUT_PRESALE: is "9000h", want a duration such as 90s or 1h30m, from 1ms to 8760h0m0s`,
		`RECONCILE_SCHEDULE: is "* * *", want five cron fields (minute hour day month weekday), @every with a duration from 1s, or @hourly, @daily, @weekly, @monthly, @yearly`,
		`AUDIT_SCHEDULE: is "nightly", want five cron fields (minute hour day month weekday), @every with a duration from 1s, or @hourly, @daily, @weekly, @monthly, @yearly`,
		`RETENTION: is "1ms", want a duration such as 90s or 1h30m, from 1s to 87600h0m0s`,
		`MIGRATE_ON_START: is "maybe", want true or false`,
		`ADMIN_TOKEN: want printable ASCII without spaces`,
	}, strings.Split(err.Error(), "\n"))
}

func TestLoad_JudgesEachForm(t *testing.T) {
	t.Parallel()
	forms := map[string]struct{ good, bad []string }{
		"HTTP_ADDR": {
			good: []string{"127.0.0.1:0", "127.9.9.9:8080", "[::1]:8080", "localhost:8080"},
			bad:  []string{":8080", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "localhost.evil.org:1", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536", "a b:1"},
		},
		"WORKER_HTTP_ADDR": {
			good: []string{"127.0.0.1:9090", "[::1]:0", "localhost:9090"},
			bad:  []string{"9090", "::1:9090", "h:-1", "h:", ":9090", "0.0.0.0:9090", "worker.internal:9090"},
		},
		"MYSQL_DSN": {
			good: []string{"/db", "u@/db", "u:p@tcp(h:3306)/db", "u:p/@:(@tcp([::1]:3306)/db?x=y", "u@unix(/run/my.sock)/db", "u:p@tcp/db", "/db?timeout=5s&parseTime=true&loc=Asia%2FShanghai&x"},
			bad:  []string{"db", "u:p@tcp(h:3306)/", "u:p@tcp(h:3306)", "mysql://u:p@h:3306/db", "mysql://u:p@h/db", "u:p@h:3306/db", "u@tcp()/db", "u@tcp(h/db", "u@unix(/run/my.sock)", "u:\n@tcp(h)/db", "/db?timeout=abc", "/db?readTimeout=", "/db?parseTime=maybe", "/db?maxAllowedPacket=1k", "/db?a=%zz"},
		},
		"AMQP_URL": {
			good: []string{"amqp://h", "amqps://u:p%40@h:5671/v?heartbeat=5", "amqp://u:p@[::1]:5672/"},
			bad:  []string{"h:5672", "amqp:h", "amqp:///v", "http://h", "amqp://u:p#q@h", "amqp://h:0", "amqp://h:", "amqp://h:99999", "amqp://u:%zz@h"},
		},
		"NAMESPACE": {
			good: []string{"a", "A.b_c-9", strings.Repeat("n", 64)},
			bad:  []string{"amq.x", "a/b", "ä", strings.Repeat("n", 65)},
		},
		"DELAY_STRATEGY": {
			good: []string{"auto", "plugin", "hold", "tiers"},
			bad:  []string{"AUTO", "tier"},
		},
		"DELAY_TIERS": {
			good: []string{"1s", "24h,10m,30m", "1176h", "1.001s", "60s,61s", "1s,2s,3s,4s,5s,6s,7s,8s,9s,10s,11s,12s,13s,14s,15s,16s"},
			bad: []string{
				"10m, 30m", "10m,", "10", "soon", "999ms", "-10m", "0s", "1176h0m0.001s", "1.0005s", "60s,1m",
				"1s,2s,3s,4s,5s,6s,7s,8s,9s,10s,11s,12s,13s,14s,15s,16s,17s",
			},
		},
		"ADMIN_TOKEN": {
			good: []string{"x", "A.b~c+d/e=="},
			bad:  []string{"two words", "tab\t", "ü"},
		},
	}
	for name, form := range forms {
		for _, value := range form.good {
			_, err := config.Load([]string{name + "=" + value})
			require.NoError(t, err, "%s=%s", name, value)
		}
		for _, value := range form.bad {
			_, err := config.Load([]string{name + "=" + value})
			require.ErrorContains(t, err, name+": ", "%s=%s", name, value)
		}
	}
}

func TestLoad_AcceptsTheSchedulesThatCronRuns(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"* * * * *", "*/5 * * * *", "0 3 * * MON-FRI", "0,30 9-17/2 1 jan-mar,12 0", "5/15 ? 31 * sat", "@hourly", "@daily", "@midnight",
		"@weekly", "@monthly", "@yearly", "@annually", "@every 1s", "@every 1h30m",
	} {
		_, err := cron.ParseStandard(value)
		require.NoError(t, err, value)
		_, err = config.Load([]string{"RECONCILE_SCHEDULE=" + value})
		require.NoError(t, err, value)
	}
	for _, value := range []string{
		"*", "* * * *", "* * * * * *", "99 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * foo *",
		"* * * * 7", "5-1 * * * *", "*/0 * * * *", "*/99 * * * *", "*/ * * * *", "1- * * * *", "-1 * * * *", "+1 * * * *", "1,, * * * *",
		"a * * * *", "TZ=0 * * * *", "@", "@every", "@every ", "@every soon", "@every 0s", "@every -5s", "@every 1ms", "@reboot", "@Hourly",
	} {
		_, err := config.Load([]string{"RECONCILE_SCHEDULE=" + value})
		require.ErrorContains(t, err, "RECONCILE_SCHEDULE: is ", value)
	}
}

// FuzzLoad_AcceptsNoScheduleThatCronRefuses keeps the rule as strict as what runs the schedules.
func FuzzLoad_AcceptsNoScheduleThatCronRefuses(f *testing.F) {
	for _, seed := range []string{"* * * * *", "0,30 9-17/2 1 jan-mar,12 0", "@every 1m", "*/0 99 a-b ? 7"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if _, err := config.Load([]string{"RECONCILE_SCHEDULE=" + value}); err == nil && value != "" {
			_, err := cron.ParseStandard(value)
			require.NoError(t, err, "%q", value)
		}
	})
}

// Each error says which of the rules was broken.
func TestLoad_SaysWhatIsWrongWithTheTiers(t *testing.T) {
	t.Parallel()
	for value, problem := range map[string]string{
		"10m;30m":       `DELAY_TIERS: is "10m;30m", want 1 to 16 durations with commas between them and no spaces, such as 10m,30m,24h`,
		"10m,50d":       `DELAY_TIERS: is "10m,50d", want 1 to 16 durations with commas between them and no spaces, such as 10m,30m,24h`,
		"10m,1176h1s":   `DELAY_TIERS: is "10m,1176h1s", want durations from 1s to 1176h0m0s`,
		"500ms,10m":     `DELAY_TIERS: is "500ms,10m", want durations from 1s to 1176h0m0s`,
		"1.0000001s,2s": `DELAY_TIERS: is "1.0000001s,2s", want durations of whole milliseconds`,
		"10m,30m,600s":  `DELAY_TIERS: is "10m,30m,600s", want durations that differ`,
	} {
		_, err := config.Load([]string{"DELAY_STRATEGY=tiers", "DELAY_TIERS=" + value})
		require.EqualError(t, err, problem)
	}
}

func TestLoad_WorkerAddressBeyondLoopbackNeedsTheAdminToken(t *testing.T) {
	t.Parallel()
	for _, tokens := range [][]string{nil, {"API_TOKEN=" + strings.Repeat("b", 16)}} {
		_, err := config.Load(append(tokens, "WORKER_HTTP_ADDR=:9090"))
		require.EqualError(t, err, `WORKER_HTTP_ADDR: is ":9090", want a loopback address such as 127.0.0.1:9090, or ADMIN_TOKEN set`)
	}
	_, err := config.Load([]string{"WORKER_HTTP_ADDR=:9090", "ADMIN_TOKEN=" + strings.Repeat("a", 16)})
	require.NoError(t, err)
}

// A token that can be guessed is none, and neither is one that opens as much as another.
func TestLoad_TokensThatProtectNothing(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 16)
	const want = "want 16 characters or more where HTTP_ADDR or WORKER_HTTP_ADDR is no loopback address: openssl rand -hex 16 makes one"
	for problem, variables := range map[string][]string{
		"ADMIN_TOKEN: " + want: {"WORKER_HTTP_ADDR=:9090", "ADMIN_TOKEN=" + long[1:]},
		"API_TOKEN: " + want:   {"HTTP_ADDR=:8080", "ADMIN_TOKEN=" + long, "API_TOKEN=b"},
		"API_TOKEN: want another one than ADMIN_TOKEN, which opens more": {"ADMIN_TOKEN=same", "API_TOKEN=same"},
	} {
		_, err := config.Load(variables)
		require.EqualError(t, err, problem)
	}
	_, err := config.Load([]string{"ADMIN_TOKEN=a", "API_TOKEN=b"})
	require.NoError(t, err, "nobody else comes near")
}

func TestLoad_AddressBeyondLoopbackNeedsBothTokens(t *testing.T) {
	t.Parallel()
	for _, tokens := range [][]string{nil, {"ADMIN_TOKEN=a"}, {"API_TOKEN=b"}} {
		_, err := config.Load(append(tokens, "HTTP_ADDR=:8080"))
		require.ErrorContains(t, err, "HTTP_ADDR: ")
	}
	_, err := config.Load([]string{"HTTP_ADDR=:8080", "ADMIN_TOKEN=" + strings.Repeat("a", 16), "API_TOKEN=" + strings.Repeat("b", 16)})
	require.NoError(t, err)
}

// Settings of signed identities that would leave something open, or check nothing, are refused.
func TestLoad_IdentitiesNeedWhatMakesThemSafe(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s", 32)
	for problem, variables := range map[string][]string{
		"JWT_SECRET: want at least 32 bytes":                                                 {"API_TOKEN=b", "JWT_SECRET=" + secret[1:]},
		"JWT_SECRET: want API_TOKEN set as well":                                             {"JWT_SECRET=" + secret},
		"JWT_SECRET: want nothing while JWT_JWKS_FILE is set: one of them":                   {"API_TOKEN=b", "JWT_SECRET=" + secret, "JWT_JWKS_FILE=/k", "JWT_AUDIENCE=a"},
		`JWT_JWKS_FILE: is "/k", want API_TOKEN set as well`:                                 {"JWT_JWKS_FILE=/k", "JWT_AUDIENCE=a"},
		"JWT_AUDIENCE: want the audience that the keys of JWT_JWKS_FILE sign for us":         {"API_TOKEN=b", "JWT_JWKS_FILE=/k"},
		`JWT_AUDIENCE: is "a", want JWT_SECRET or JWT_JWKS_FILE set as well`:                 {"API_TOKEN=b", "JWT_AUDIENCE=a"},
		`JWT_ISSUER: is "https://id.example/", want JWT_SECRET or JWT_JWKS_FILE set as well`: {"API_TOKEN=b", "JWT_ISSUER=https://id.example/"},
	} {
		_, err := config.Load(variables)
		require.EqualError(t, err, problem)
	}
	for _, variables := range [][]string{
		{"API_TOKEN=b", "JWT_SECRET=" + secret},
		{"API_TOKEN=b", "JWT_SECRET=" + secret, "JWT_ISSUER=i", "JWT_AUDIENCE=a"},
		{"API_TOKEN=b", "JWT_JWKS_FILE=/k", "JWT_AUDIENCE=a"},
	} {
		_, err := config.Load(variables)
		require.NoError(t, err)
	}
}

func TestLoad_EncryptionNeedsAllOfIt(t *testing.T) {
	t.Parallel()
	for problem, variables := range map[string][]string{
		`TLS_CERT_FILE: is "/c", want TLS_KEY_FILE set as well`:                         {"TLS_CERT_FILE=/c"},
		`TLS_KEY_FILE: is "/k", want TLS_CERT_FILE set as well`:                         {"TLS_KEY_FILE=/k"},
		`TLS_CLIENT_CA_FILE: is "/ca", want TLS_CERT_FILE set as well`:                  {"TLS_CLIENT_CA_FILE=/ca"},
		`MYSQL_TLS_KEY_FILE: is "/k", want MYSQL_TLS_CERT_FILE set as well`:             {"MYSQL_TLS_KEY_FILE=/k"},
		`AMQP_TLS_CERT_FILE: is "/c", want AMQP_TLS_KEY_FILE set as well`:               {"AMQP_TLS_CERT_FILE=/c"},
		`AMQP_TLS_CA_FILE: is "/ca", want an AMQP_URL that begins with amqps://`:        {"AMQP_TLS_CA_FILE=/ca", "AMQP_URL=amqp://h"},
		`MYSQL_TLS_CA_FILE: is "/ca", want a MYSQL_DSN that says nothing of tls itself`: {"MYSQL_TLS_CA_FILE=/ca", "MYSQL_DSN=u@tcp(h)/d?x=y&tls=skip-verify"},
	} {
		_, err := config.Load(variables)
		require.EqualError(t, err, problem)
	}
}

func TestLoad_ReadsSecretsFromFiles(t *testing.T) {
	t.Parallel()
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	c, err := config.Load([]string{
		"MYSQL_DSN_FILE=" + file("u:p@/db\n"), "AMQP_URL_FILE=" + file("amqp://h\r\n"),
		"ADMIN_TOKEN_FILE=" + file("a"), "API_TOKEN_FILE=" + file("b\n"),
	}, "MYSQL_DSN", "AMQP_URL")
	require.NoError(t, err)
	require.Equal(t, "u:p@/db", c.MySQLDSN.Reveal())
	require.Equal(t, "amqp://h", c.AMQPURL.Reveal())
	require.Equal(t, "a", c.AdminToken.Reveal())
	require.Equal(t, "b", c.APIToken.Reveal())

	for problem, variables := range map[string][]string{
		"API_TOKEN: is set, and so is API_TOKEN_FILE: set one of them": {"API_TOKEN=a", "API_TOKEN_FILE=" + file("a")},
		"API_TOKEN_FILE: the file is empty":                            {"API_TOKEN_FILE=" + file("\n")},
		"API_TOKEN_FILE: the file is larger than 65536 bytes":          {"API_TOKEN_FILE=" + file(strings.Repeat("a", 65537))},
		"API_TOKEN_FILE: read the file: is a directory":                {"API_TOKEN_FILE=" + t.TempDir()},
		"API_TOKEN: want printable ASCII without spaces":               {"API_TOKEN_FILE=" + file("a\n\n")},
		"MYSQL_DSN_FILE: the file is empty":                            {"MYSQL_DSN_FILE=" + file("")},
		"MYSQL_DSN: is required":                                       {"API_TOKEN=a"},
	} {
		_, err := config.Load(variables, "MYSQL_DSN")
		require.ErrorContains(t, err, problem)
	}
}
