package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

const (
	// The delayed exchange keeps a message for 2^32-1 ms (1193h2m47.295s), and routes at once what has one more.
	maxHorizon = 1193 * time.Hour
	// So does a queue with a time to live, and is not declared with one more.
	maxTier  = 49 * day
	maxTiers = 16
)

// Tokens that machines elsewhere may try are long: a cookie that was seen lets ADMIN_TOKEN be guessed as fast as hashes are made.
const (
	minToken  = 16
	longToken = "16 characters or more where HTTP_ADDR or WORKER_HTTP_ADDR is no loopback address: openssl rand -hex 16 makes one"
)

// A rule is what one variable accepts, and whether it does.
type rule struct {
	name, want string
	ok         bool
}

// rules judges c, in the order of its fields. Where a variable has two rules, only the first that is broken counts.
func (c *Config) rules() []rule {
	guarded := c.AdminToken.IsSet() && c.APIToken.IsSet()
	public := !isLoopback(c.HTTPAddr) || !isLoopback(c.WorkerHTTPAddr)
	long := func(s Secret) bool { return !public || !s.IsSet() || len(s.Reveal()) >= minToken }
	identities := c.JWTSecret.IsSet() || c.JWKSFile != ""
	return []rule{
		{"HTTP_ADDR", "host:port with a numeric port", isAddress(c.HTTPAddr)},
		{"HTTP_ADDR", "a loopback address such as 127.0.0.1:8080, or both ADMIN_TOKEN and API_TOKEN set", guarded || isLoopback(c.HTTPAddr)},
		{"WORKER_HTTP_ADDR", "host:port with a numeric port", isAddress(c.WorkerHTTPAddr)},
		{"WORKER_HTTP_ADDR", "a loopback address such as 127.0.0.1:9090, or ADMIN_TOKEN set", c.AdminToken.IsSet() || isLoopback(c.WorkerHTTPAddr)},
		{"MYSQL_DSN", "user:password@tcp(host:3306)/database, which is not a URL", !c.MySQLDSN.IsSet() || isDSN(c.MySQLDSN.Reveal())},
		{"MYSQL_DSN", "parameters that the driver takes: durations such as timeout=5s, true or false, percent-encoded text", !c.MySQLDSN.IsSet() || areParameters(c.MySQLDSN.Reveal())},
		{"AMQP_URL", "amqp://user:password@host:5672/vhost or amqps://, special characters percent-encoded", !c.AMQPURL.IsSet() || isAMQP(c.AMQPURL.Reveal())},
		{"NAMESPACE", "1 to 64 of A-Z a-z 0-9 . _ - and not the broker's own prefix amq.", isNamespace(c.Namespace)},
		{"DELAY_STRATEGY", "auto, plugin, hold or tiers", slices.Contains([]Strategy{StrategyAuto, StrategyPlugin, StrategyHold, StrategyTiers}, c.DelayStrategy)},
		{"DELAY_TIERS", fmt.Sprintf("1 to %d durations with commas between them and no spaces, such as 10m,30m,24h", maxTiers), 1 <= len(c.DelayTiers) && len(c.DelayTiers) <= maxTiers},
		{"DELAY_TIERS", fmt.Sprintf("durations from 1s to %v", maxTier), !slices.ContainsFunc(c.DelayTiers, func(d time.Duration) bool { return d < time.Second || d > maxTier })},
		{"DELAY_TIERS", "durations of whole milliseconds", !slices.ContainsFunc(c.DelayTiers, func(d time.Duration) bool { return d%time.Millisecond != 0 })},
		{"DELAY_TIERS", "durations that differ", areDistinct(c.DelayTiers)},
		duration("HORIZON", c.Horizon, time.Millisecond, maxHorizon),
		duration("GRACE", c.Grace, time.Millisecond, day),
		count("MAX_ATTEMPTS", c.MaxAttempts, 1, 1000),
		count("PREFETCH", c.Prefetch, 0, math.MaxUint16),
		count("WORKERS", c.Workers, 1, 1024),
		duration("DRAIN_TIMEOUT", c.DrainTimeout, time.Millisecond, time.Hour),
		duration("ORDER_TIMEOUT_NORMAL", c.OrderTimeoutNormal, time.Millisecond, 365*day),
		duration("ORDER_TIMEOUT_FLASH", c.OrderTimeoutFlash, time.Millisecond, 365*day),
		duration("ORDER_TIMEOUT_PRESALE", c.OrderTimeoutPresale, time.Millisecond, 365*day),
		duration("ORDER_REMIND_BEFORE", c.OrderRemindBefore, 0, 365*day),
		{"RECONCILE_SCHEDULE", scheduleRule, isSchedule(c.ReconcileSchedule)},
		{"AUDIT_SCHEDULE", scheduleRule, isSchedule(c.AuditSchedule)},
		duration("RETENTION", c.Retention, time.Second, 3650*day),
		{"MIGRATE_ON_START", "true or false", true},
		{"ADMIN_TOKEN", "printable ASCII without spaces", isToken(c.AdminToken.Reveal())},
		{"ADMIN_TOKEN", longToken, long(c.AdminToken)},
		{"API_TOKEN", "printable ASCII without spaces", isToken(c.APIToken.Reveal())},
		{"API_TOKEN", longToken, long(c.APIToken)},
		{"API_TOKEN", "another one than ADMIN_TOKEN, which opens more", !guarded || c.APIToken.Reveal() != c.AdminToken.Reveal()},
		{"JWT_SECRET", "at least 32 bytes", !c.JWTSecret.IsSet() || len(c.JWTSecret.Reveal()) >= 32},
		{"JWT_SECRET", "another one than ADMIN_TOKEN and API_TOKEN", !c.JWTSecret.IsSet() || c.JWTSecret.Reveal() != c.AdminToken.Reveal() && c.JWTSecret.Reveal() != c.APIToken.Reveal()},
		{"JWT_SECRET", "nothing while JWT_JWKS_FILE is set: one of them", !c.JWTSecret.IsSet() || c.JWKSFile == ""},
		{"JWT_SECRET", "API_TOKEN set as well", !c.JWTSecret.IsSet() || c.APIToken.IsSet()},
		{"JWT_JWKS_FILE", "API_TOKEN set as well", c.JWKSFile == "" || c.APIToken.IsSet()},
		{"JWT_ISSUER", "JWT_SECRET or JWT_JWKS_FILE set as well", c.JWTIssuer == "" || identities},
		{"JWT_AUDIENCE", "JWT_SECRET or JWT_JWKS_FILE set as well", c.JWTAudience == "" || identities},
		{"JWT_AUDIENCE", "the audience that the keys of JWT_JWKS_FILE sign for us", c.JWKSFile == "" || c.JWTAudience != ""},
		pair("TLS_CERT_FILE", "TLS_KEY_FILE", c.TLSCertFile, c.TLSKeyFile),
		{"TLS_CLIENT_CA_FILE", "TLS_CERT_FILE set as well", c.TLSClientCAFile == "" || c.TLSCertFile != ""},
		pair("MYSQL_TLS_CERT_FILE", "MYSQL_TLS_KEY_FILE", c.MySQLCertFile, c.MySQLKeyFile),
		{"MYSQL_TLS_CA_FILE", "a MYSQL_DSN that says nothing of tls itself", !c.MySQLTLS() || !saysTLS(c.MySQLDSN.Reveal())},
		pair("AMQP_TLS_CERT_FILE", "AMQP_TLS_KEY_FILE", c.AMQPCertFile, c.AMQPKeyFile),
		{"AMQP_TLS_CA_FILE", "an AMQP_URL that begins with amqps://", !c.AMQPTLS() || !c.AMQPURL.IsSet() || strings.HasPrefix(c.AMQPURL.Reveal(), "amqps://")},
		rate("RATE_LIMIT", c.RateLimit),
		rate("RATE_LIMIT_UNKNOWN", c.RateLimitUnknown),
	}
}

// problem is the rule's line when it is broken. It shows the value that was found, cut short, unless that is a secret.
func (r rule) problem(value string) string {
	if value == "" || slices.Contains(secretVariables(), r.name) {
		return fmt.Sprintf("%s: want %s", r.name, r.want)
	}
	return fmt.Sprintf("%s: is %.64q, want %s", r.name, value, r.want)
}

func duration(name string, d, low, high time.Duration) rule {
	return rule{name, fmt.Sprintf("a duration such as 90s or 1h30m, from %v to %v", low, high), low <= d && d <= high}
}

func count(name string, n, low, high int) rule {
	return rule{name, fmt.Sprintf("a whole number from %d to %d", low, high), low <= n && n <= high}
}

// pair is the rule of a certificate and its key.
func pair(certificate, key, certificatePath, keyPath string) rule {
	if certificatePath == "" {
		certificate, key = key, certificate
	}
	return rule{certificate, key + " set as well", (certificatePath == "") == (keyPath == "")}
}

// saysTLS reports whether a DSN has the parameter tls.
func saysTLS(dsn string) bool {
	_, parameters, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	return slices.ContainsFunc(strings.Split(parameters, "&"), func(p string) bool { return strings.HasPrefix(p, "tls=") })
}

// MySQLTLS reports whether connections to MySQL are encrypted by files of ours.
func (c *Config) MySQLTLS() bool { return c.MySQLCAFile != "" || c.MySQLCertFile != "" }

// AMQPTLS reports whether connections to RabbitMQ are encrypted by files of ours.
func (c *Config) AMQPTLS() bool { return c.AMQPCAFile != "" || c.AMQPCertFile != "" }

// rate leaves out NaN, which no comparison accepts.
func rate(name string, perSecond float64) rule {
	return rule{name, "a number per second from 0 to 1000000", 0 <= perSecond && perSecond <= 1e6}
}

func areDistinct(all []time.Duration) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(all)))) == len(all)
}

func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsFunc(host, isControlOrSpace) {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// isLoopback trusts no host name but localhost: what a name resolves to can change.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isDSN checks the shape [user[:password]@][network[(address)]]/database[?parameters]. The last slash and the last
// @ before it count, as they do for the driver, so that passwords may hold both.
func isDSN(s string) bool {
	slash := strings.LastIndexByte(s, '/')
	if slash < 0 || strings.ContainsFunc(s, isControl) || strings.HasPrefix(s, "mysql://") || strings.HasPrefix(s, "mariadb://") {
		return false
	}
	database, _, _ := strings.Cut(s[slash+1:], "?")
	server := s[:slash]
	server = server[strings.LastIndexByte(server, '@')+1:]
	network, address, hasAddress := strings.Cut(server, "(")
	if hasAddress && (len(address) < 2 || strings.IndexByte(address, ')') != len(address)-1) {
		return false
	}
	return database != "" && !strings.ContainsAny(network, ":/)")
}

// areParameters checks the parameters whose form the driver fixes. What it does not know it sends to the server as variables.
func areParameters(dsn string) bool {
	_, parameters, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for parameter := range strings.SplitSeq(parameters, "&") {
		name, value, found := strings.Cut(parameter, "=")
		if !found {
			continue // the driver passes it over
		}
		_, err := url.QueryUnescape(value)
		switch name {
		case "timeout", "readTimeout", "writeTimeout", "timeTruncate":
			_, err = time.ParseDuration(value)
		case "maxAllowedPacket":
			_, err = strconv.Atoi(value)
		case "allowAllFiles", "allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "allowOldPasswords",
			"checkConnLiveness", "clientFoundRows", "columnsWithAlias", "interpolateParams", "multiStatements", "parseTime",
			"rejectReadOnly":
			if !slices.Contains([]string{"1", "true", "TRUE", "True", "0", "false", "FALSE", "False"}, value) {
				return false
			}
		}
		if err != nil {
			return false
		}
	}
	return true
}

func isAMQP(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "" || u.Fragment != "" {
		return false
	}
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

func isNamespace(s string) bool {
	foreign := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	return len(s) >= 1 && len(s) <= 64 && !strings.ContainsFunc(s, foreign) && !strings.HasPrefix(s, "amq.")
}

func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func isControlOrSpace(r rune) bool { return r <= ' ' || r == 0x7f }
