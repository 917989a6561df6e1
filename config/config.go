// Package config turns environment variables into a Config.
//
// It promises that every problem is reported at once, one line for each variable that has one, and that
// no secret is ever part of an error or shows when a Config is printed, logged or encoded. It does not
// connect to anything: a data source name or URL that has the right shape may still lead nowhere.
package config

import (
	"errors"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"
)

// Strategy names a way to have a message fired at its due time.
type Strategy string

// The strategies.
const (
	StrategyAuto   Strategy = "auto"   // ask the broker, then choose
	StrategyPlugin Strategy = "plugin" // the x-delayed-message exchange
	StrategyHold   Strategy = "hold"   // MySQL until the due time; needs nothing of the broker
	StrategyTiers  Strategy = "tiers"  // queues that keep what is in them for a fixed time
)

// Config is every setting of api and worker. The comment of a field is its row in the README's table.
// It is immutable by convention and safe for concurrent use.
type Config struct {
	// Where the API listens. Anything but a loopback address needs both `ADMIN_TOKEN` and `API_TOKEN`.
	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8080"`
	// Where the worker answers `/healthz`, `/readyz` and `/metrics`. Anything but a loopback address needs `ADMIN_TOKEN`.
	WorkerHTTPAddr string `env:"WORKER_HTTP_ADDR" envDefault:"127.0.0.1:9090"`
	// MySQL 8 or MariaDB 10.6+, in the form of go-sql-driver: `user:password@tcp(host:3306)/database`.
	MySQLDSN Secret `env:"MYSQL_DSN"`
	// RabbitMQ 3.10+: `amqp://user:password@host:5672/vhost`, or `amqps`. Special characters are percent-encoded.
	AMQPURL Secret `env:"AMQP_URL"`
	// Prefix of every exchange and queue, so that several installations can share a broker.
	Namespace string `env:"NAMESPACE" envDefault:"duebox"`
	// How messages are delayed: `plugin` (the x-delayed-message exchange), `hold` (MySQL, needs nothing of the broker), `tiers` (queues with a fixed delay each, see `DELAY_TIERS`), or `auto`: plugin where the broker has it, else hold.
	DelayStrategy Strategy `env:"DELAY_STRATEGY" envDefault:"auto"`
	// The delays of strategy `tiers`, 1 to 16. A message waits in MySQL, spends the longest that fits in the broker and fires.
	DelayTiers []time.Duration `env:"DELAY_TIERS" envDefault:"10m,30m,24h"`
	// How far ahead of its fire time a message is handed to the broker with strategy `plugin`; what is due later waits in MySQL.
	Horizon time.Duration `env:"HORIZON" envDefault:"10m"`
	// How long after its due time a published message may still take effect before it is taken for lost.
	Grace time.Duration `env:"GRACE" envDefault:"30s"`
	// Effects that may return an error before the message is dead and waits for an operator.
	MaxAttempts int `env:"MAX_ATTEMPTS" envDefault:"10"`
	// Deliveries of a topic that the broker may send a worker ahead of their acknowledgement. 0: 4 for each of `WORKERS`, and for the topic that closes orders, up to 32 at a time, 16 for each of them.
	Prefetch int `env:"PREFETCH" envDefault:"0"`
	// Effects that run at the same time, for each topic.
	Workers int `env:"WORKERS" envDefault:"8"`
	// How long a stopping process may take to finish what is in flight.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT" envDefault:"20s"`
	// How long a normal order may stay unpaid. An order keeps the due time that it was placed with.
	OrderTimeoutNormal time.Duration `env:"ORDER_TIMEOUT_NORMAL" envDefault:"30m"`
	// The same for flash sales.
	OrderTimeoutFlash time.Duration `env:"ORDER_TIMEOUT_FLASH" envDefault:"10m"`
	// The same for presales.
	OrderTimeoutPresale time.Duration `env:"ORDER_TIMEOUT_PRESALE" envDefault:"24h"`
	// How long before its due time an order's buyer is reminded, unless that is over when the order is placed or its due time moved. `0`: not at all.
	OrderRemindBefore time.Duration `env:"ORDER_REMIND_BEFORE" envDefault:"5m"`
	// When the reconciler makes a pass, and beside it deletes what `RETENTION` is over for: five cron fields in UTC, or a descriptor such as `@hourly` or `@every 30s`.
	ReconcileSchedule string `env:"RECONCILE_SCHEDULE" envDefault:"* * * * *"`
	// When the reconciler audits as well: five cron fields in UTC, or a descriptor such as `@daily`.
	AuditSchedule string `env:"AUDIT_SCHEDULE" envDefault:"17 3 * * *"`
	// How long done and canceled messages are kept before they are purged.
	Retention time.Duration `env:"RETENTION" envDefault:"168h"`
	// Whether api and worker bring the database's schema up to date when they start.
	MigrateOnStart bool `env:"MIGRATE_ON_START" envDefault:"true"`
	// Bearer token that `/metrics` wants, of the API and of the worker, and everything below `/v1/admin`. Empty: none, but with `API_TOKEN` set `/v1/admin` is shut. 16 characters or more where anything but loopback addresses is listened on.
	AdminToken Secret `env:"ADMIN_TOKEN"`
	// Bearer token that everything else below `/v1` wants, another one than `ADMIN_TOKEN` and as long. Empty: none. `/healthz` and `/readyz` are always open.
	APIToken Secret `env:"API_TOKEN"`
	// Secret of 32 bytes or more by which signed identities (JWT, HS256) are judged. With it, or with `JWT_JWKS_FILE`, a bearer token below `/v1/orders` may be a user's signed identity in place of `API_TOKEN`, which has to be set as well; it places, shows and cancels the orders of its `sub`, and nothing else.
	JWTSecret Secret `env:"JWT_SECRET"`
	// File with the public keys (JWK Set; RS256, ES256) by which signed identities are judged, in place of `JWT_SECRET`. It is read anew when it changes.
	JWKSFile string `env:"JWT_JWKS_FILE"`
	// What signed identities must name as their issuer (`iss`). Empty: any.
	JWTIssuer string `env:"JWT_ISSUER"`
	// What signed identities must name as their audience (`aud`). Required with `JWT_JWKS_FILE`, whose keys sign for others too. Empty: any.
	JWTAudience string `env:"JWT_AUDIENCE"`
	// Certificate that the listeners of API and worker show, in PEM, with those between it and its CA. With it they speak TLS only. All files of certificates and keys are read anew when they change, for new connections.
	TLSCertFile string `env:"TLS_CERT_FILE"`
	// Its private key.
	TLSKeyFile string `env:"TLS_KEY_FILE"`
	// CA whose certificates clients of API and worker must show, beside their tokens; not for `/healthz` and `/readyz`. Empty: none is asked for.
	TLSClientCAFile string `env:"TLS_CLIENT_CA_FILE"`
	// CA that must have signed the certificate of MySQL. With it, or a certificate below, connections are encrypted, and the server has to be the host of `MYSQL_DSN`. Empty: those that the system trusts.
	MySQLCAFile string `env:"MYSQL_TLS_CA_FILE"`
	// Certificate that MySQL is shown, in PEM.
	MySQLCertFile string `env:"MYSQL_TLS_CERT_FILE"`
	// Its private key.
	MySQLKeyFile string `env:"MYSQL_TLS_KEY_FILE"`
	// CA that must have signed the certificate of RabbitMQ, where `AMQP_URL` is `amqps`. Empty: those that the system trusts.
	AMQPCAFile string `env:"AMQP_TLS_CA_FILE"`
	// Certificate that RabbitMQ is shown, in PEM.
	AMQPCertFile string `env:"AMQP_TLS_CERT_FILE"`
	// Its private key.
	AMQPKeyFile string `env:"AMQP_TLS_KEY_FILE"`
	// Requests per second that a client of the API may make, up to twice as many at once: a user, or an address that has a right token or needs none. More are answered 429. `0`: any number.
	RateLimit float64 `env:"RATE_LIMIT" envDefault:"1000"`
	// The same of an address whose credentials are wrong or missing. Attempts to log in to the page are limited to ten at once and one every ten seconds, whatever is set.
	RateLimitUnknown float64 `env:"RATE_LIMIT_UNKNOWN" envDefault:"20"`
}

// Load reads environ, which has the form of os.Environ; a variable that is empty counts as not set. Of each
// variable that holds a secret, NAME_FILE may name a file to read it from instead, less one trailing newline.
// Required names the variables that the calling command cannot do without.
//
// The error joins all problems: one line each, which names the variable and what it accepts.
func Load(environ []string, required ...string) (Config, error) {
	vars := env.ToMap(environ)
	var found problems
	readSecretFiles(vars, &found)
	for _, name := range required {
		if vars[name] == "" {
			found.add(name, name+": is required")
		}
	}

	var c Config
	unparsed := unparsedVariables(env.ParseWithOptions(&c, env.Options{Environment: vars}))
	for _, r := range c.rules() {
		if !r.ok || unparsed[r.name] {
			found.add(r.name, r.problem(vars[r.name]))
		}
	}
	if len(found.errs) > 0 {
		return Config{}, errors.Join(found.errs...)
	}
	return c, nil
}

// unparsedVariables names the variables whose text is not of their field's type.
func unparsedVariables(err error) map[string]bool {
	names := map[string]bool{}
	var all env.AggregateError
	errors.As(err, &all)
	for _, err := range all.Errors {
		var p env.ParseError
		if !errors.As(err, &p) {
			panic("config: the tags of Config are wrong: " + err.Error())
		}
		field, _ := reflect.TypeFor[Config]().FieldByName(p.Name)
		names[field.Tag.Get("env")] = true
	}
	return names
}

// problems keeps the first problem of each variable: what follows from it would only repeat it.
type problems struct {
	seen map[string]bool
	errs []error
}

func (p *problems) add(variable, text string) {
	if p.seen[variable] {
		return
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[variable] = true
	p.errs = append(p.errs, errors.New(text))
}
