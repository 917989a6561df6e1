package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The node's ports, counted from the block's first: AMQP, Erlang distribution,
// epmd, and a few for rabbitmqctl, which listens while it runs.
const (
	distOffset = 1
	epmdOffset = 2
	ctlOffset  = 3
	portsUsed  = blockSize
)

const (
	userName = "duebox"
	ctlLimit = time.Minute
)

func (r *RabbitMQ) epmdPort() int    { return r.ports.base + epmdOffset }
func (r *RabbitMQ) nodeName() string { return fmt.Sprintf("duebox-%d@localhost", r.ports.base) }

// installation is the RabbitMQ that this machine has.
type installation struct {
	server  string   // the server's script, not the wrapper that changes user
	ctl     string   // rabbitmqctl beside it
	plugins []string // the folders where it looks for plugins
	lib     string   // the one that holds the broker itself
	version string
	epmd    string
}

func findInstallation() (*installation, error) {
	// Debian's place, then that of the official image and of a tarball.
	server, err := program("rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/rabbitmq/sbin/rabbitmq-server")
	if err != nil {
		return nil, err
	}
	// On PATH is Debian's wrapper, which changes user.
	if own := "/usr/lib/rabbitmq/bin/rabbitmq-server"; server != own {
		if _, err := os.Stat(own); err == nil {
			server = own
		}
	}
	epmd, err := program("epmd")
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(server)
	if err != nil {
		return nil, fmt.Errorf("devenv: %w", err)
	}
	lib := filepath.Join(filepath.Dir(filepath.Dir(real)), "plugins")
	i := &installation{
		server:  server,
		ctl:     filepath.Join(filepath.Dir(server), "rabbitmqctl"),
		plugins: []string{"/usr/lib/rabbitmq/plugins", lib},
		lib:     lib,
		epmd:    epmd,
	}
	i.version, err = i.find("rabbit")
	if err != nil {
		return nil, err
	}
	if i.version == "" {
		return nil, fmt.Errorf("devenv: no rabbit-VERSION in %s", lib)
	}
	return i, nil
}

// find gives the version of an installed plugin, empty if there is none.
func (i *installation) find(plugin string) (string, error) {
	for _, dir := range i.plugins {
		found, err := filepath.Glob(filepath.Join(dir, plugin+"-[0-9]*"))
		if err != nil {
			return "", fmt.Errorf("devenv: %w", err)
		}
		if len(found) > 0 {
			version := strings.TrimPrefix(filepath.Base(found[0]), plugin+"-")
			return strings.TrimSuffix(version, ".ez"), nil
		}
	}
	return "", nil
}

// exchange decides what gives the broker the type x-delayed-message.
func (i *installation) exchange(wanted string) (string, error) {
	upstream, err := i.find(upstreamPlugin)
	if err != nil {
		return "", err
	}
	switch wanted {
	case ExchangeNone:
		return wanted, nil
	case ExchangePlugin:
		if upstream == "" {
			return "", &MissingError{Program: upstreamPlugin}
		}
		return wanted, nil
	case ExchangeStandIn:
		return wanted, i.canStandIn()
	case "":
		if upstream != "" {
			return ExchangePlugin, nil
		}
		err := i.canStandIn()
		if errors.Is(err, errNoStandIn) {
			return ExchangeNone, nil
		}
		return ExchangeStandIn, err
	default:
		return "", fmt.Errorf("devenv: unknown exchange %q", wanted)
	}
}

// prepare writes what the node reads at every start.
func (r *RabbitMQ) prepare(ctx context.Context) error {
	for _, dir := range []string{"log", "plugins"} {
		if err := os.Mkdir(r.home.path(dir), 0o700); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	settings := append([]string{
		"listeners.tcp.default = 127.0.0.1:" + strconv.Itoa(r.Port()),
		"default_user = " + userName,
		"default_pass = " + r.password,
		"log.file = rabbitmq.log",
		"log.console = false",
	}, r.config.Settings...)
	enabled := "[]."
	switch r.config.Plugin {
	case ExchangePlugin:
		enabled = "[" + upstreamPlugin + "]."
	case ExchangeStandIn:
		enabled = "[" + standInPlugin + "]."
		if err := r.install.compileStandIn(ctx, r.home.path("plugins")); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"rabbitmq.conf":     strings.Join(settings, "\n") + "\n",
		"rabbitmq-env.conf": "",
		"enabled_plugins":   enabled + "\n",
		".erlang.cookie":    secret(),
	} {
		if err := os.WriteFile(r.home.path(name), []byte(text), 0o400); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	return nil
}

// environment is everything the node and rabbitmqctl know of this machine.
func (r *RabbitMQ) environment() []string {
	port := func(offset int) string { return strconv.Itoa(r.ports.base + offset) }
	plugins := append([]string{r.home.path("plugins")}, r.install.plugins...)
	erlang := []string{"-kernel", "inet_dist_use_interface", "{127,0,0,1}"}
	if r.config.Plugin == ExchangeStandIn {
		erlang = append(erlang, r.standInArguments()...)
	}
	return append(baseEnv(r.home.dir),
		"ERL_EPMD_PORT="+port(epmdOffset),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_FLAGS=-start_epmd false",
		"RABBITMQ_NODENAME="+r.nodeName(),
		"RABBITMQ_NODE_PORT="+port(0),
		"RABBITMQ_DIST_PORT="+port(distOffset),
		"RABBITMQ_CTL_DIST_PORT_MIN="+port(ctlOffset),
		"RABBITMQ_CTL_DIST_PORT_MAX="+port(blockSize-1),
		"RABBITMQ_MNESIA_BASE="+r.home.path("data"),
		"RABBITMQ_LOG_BASE="+r.home.path("log"),
		"RABBITMQ_CONF_ENV_FILE="+r.home.path("rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE="+r.home.path("rabbitmq"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+r.home.path("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+r.home.path("enabled_plugins"),
		"RABBITMQ_PLUGINS_DIR="+strings.Join(plugins, ":"),
		"RABBITMQ_PID_FILE="+r.home.path("data", "pid"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+strings.Join(erlang, " "),
		// The script then becomes the Erlang VM instead of waiting for it, so
		// that our signals reach the VM.
		"RUNNING_UNDER_SYSTEMD=true",
	)
}

// Ctl runs rabbitmqctl against the node, for example
// Ctl(ctx, "set_vm_memory_high_watermark", "0"), and returns what it prints.
// Without a deadline in ctx it gives up after a minute.
func (r *RabbitMQ) Ctl(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := limited(ctx, ctlLimit)
	defer cancel()
	r.mu.Lock()
	env := r.environment()
	r.mu.Unlock()
	cmd := exec.CommandContext(ctx, r.install.ctl, append([]string{"--quiet"}, args...)...)
	cmd.Dir = r.home.dir
	cmd.Env = env
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("devenv: rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return out, nil
}
