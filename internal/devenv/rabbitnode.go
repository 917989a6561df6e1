package devenv

import (
	"context"
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

func (r *RabbitMQ) epmdPort() int { return r.ports.base + epmdOffset }

func (r *RabbitMQ) nodeName() string {
	if r.renamed > 0 {
		return fmt.Sprintf("duebox-%d-%d@localhost", r.ports.base, r.renamed)
	}
	return fmt.Sprintf("duebox-%d@localhost", r.ports.base)
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
	if err := r.install.gather(r.home.path("modules")); err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	// Of the machine's plugins the node gets to see what it needs: reading
	// all of them makes a start half as long again.
	seen := []string{r.install.core}
	switch r.config.Plugin {
	case ExchangePlugin:
		seen = append(seen, r.install.upstream)
	case ExchangeStandIn:
		if err := r.compileStandIn(ctx); err != nil {
			return err
		}
	}
	for _, path := range seen {
		if err := os.Symlink(path, r.home.path("plugins", filepath.Base(path))); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	for name, text := range map[string]string{
		"rabbitmq.conf":     strings.Join(settings, "\n") + "\n",
		"rabbitmq-env.conf": "",
		"enabled_plugins":   r.enabledPlugins(r.plugin() != ""),
		".erlang.cookie":    secret(),
	} {
		if err := os.WriteFile(r.home.path(name), []byte(text), 0o400); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	return nil
}

// plugin is the name of the plugin that gives the node its exchange type, empty
// if none does.
func (r *RabbitMQ) plugin() string {
	switch r.config.Plugin {
	case ExchangePlugin:
		return upstreamPlugin
	case ExchangeStandIn:
		return standInPlugin
	default:
		return ""
	}
}

// enabledPlugins is the text of the file of that name.
func (r *RabbitMQ) enabledPlugins(enabled bool) string {
	if !enabled {
		return "[].\n"
	}
	return "[" + r.plugin() + "].\n"
}

// SetPlugin disables or enables the plugin of the exchange type in the running
// node, as rabbitmq-plugins does. It holds over restarts. What the exchanges of
// the type hold is gone when the plugin has been disabled.
func (r *RabbitMQ) SetPlugin(ctx context.Context, enabled bool) error {
	file, err := r.writePlugins(enabled)
	if err != nil {
		return err
	}
	answer, err := r.Eval(ctx, fmt.Sprintf("rabbit_plugins:ensure(%q).", file))
	if err != nil {
		return err
	}
	if !strings.HasPrefix(answer, "{ok,") {
		return fmt.Errorf("devenv: change plugins: %s", answer)
	}
	return nil
}

// Unplug has the next start of the node be without the plugin of the exchange
// type.
func (r *RabbitMQ) Unplug() error {
	_, err := r.writePlugins(false)
	return err
}

func (r *RabbitMQ) writePlugins(enabled bool) (file string, err error) {
	if r.plugin() == "" {
		return "", errNoPlugin
	}
	file = r.home.path("enabled_plugins")
	if err := os.WriteFile(file+".new", []byte(r.enabledPlugins(enabled)), 0o400); err != nil {
		return "", fmt.Errorf("devenv: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return "", fmt.Errorf("devenv: %w", err)
	}
	return file, nil
}

// environment is everything the node and rabbitmqctl know of this machine.
func (r *RabbitMQ) environment() []string {
	port := func(offset int) string { return strconv.Itoa(r.ports.base + offset) }
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
		"RABBITMQ_SERVER_CODE_PATH="+r.home.path("modules"),
		"RABBITMQ_PLUGINS_DIR="+r.home.path("plugins"),
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

// Eval evaluates Erlang expressions in the node, as rabbitmqctl eval does but in
// milliseconds, and returns the last one's value as Erlang prints it. They end
// with a full stop. Without a deadline in ctx it gives up after a minute.
func (r *RabbitMQ) Eval(ctx context.Context, expressions string) (string, error) {
	ctx, cancel := limited(ctx, ctlLimit)
	defer cancel()
	call, err := program("erl_call", "erl_call")
	if err != nil {
		return "", err
	}
	// The cookie is read from HOME; a random name lets calls run side by side.
	cmd := exec.CommandContext(ctx, call, "-r", "-e", "-address", fmt.Sprintf("localhost:%d", r.ports.base+distOffset))
	cmd.Env = baseEnv(r.home.dir)
	cmd.Stdin = strings.NewReader(expressions + "\n")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("devenv: erl_call: %w: %s", err, out)
	}
	value, ok := strings.CutPrefix(string(out), "{ok, ")
	if !ok {
		return "", fmt.Errorf("devenv: eval %s: %s", expressions, out)
	}
	return strings.TrimSuffix(value, "}"), nil
}
