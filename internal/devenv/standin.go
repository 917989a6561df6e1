package devenv

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

const (
	upstreamPlugin = "rabbitmq_delayed_message_exchange"
	standInPlugin  = "duebox_standin"
	standInFolder  = standInPlugin + "-1.0.0"
)

var (
	errNoStandIn = errors.New("devenv: the stand-in needs a RabbitMQ before 4.0, whose exchange types live in Mnesia")
	errNoSwitch  = errors.New("devenv: only the stand-in has the switches Lose and Stuck")
	errNoPlugin  = errors.New("devenv: the node has no plugin to disable or enable")
)

//go:embed standin/*.erl standin/*.app
var standInSource embed.FS

// canStandIn tells why the stand-in cannot be built for this broker.
func (i *installation) canStandIn() error {
	if i.major() != 3 {
		return fmt.Errorf("%w: this is %s", errNoStandIn, i.version)
	}
	_, err := program("erlc", "erlc")
	return err
}

// compileStandIn builds the plugin with the broker's own headers.
func (r *RabbitMQ) compileStandIn(ctx context.Context) error {
	erlc, err := program("erlc", "erlc")
	if err != nil {
		return err
	}
	source, ebin := r.home.path("source"), r.home.path("plugins", standInFolder, "ebin")
	for _, dir := range []string{source, ebin} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	files, err := fs.Glob(standInSource, "standin/*")
	if err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	argv := []string{erlc, "-Werror", "-o", ebin}
	for _, name := range files {
		text, err := standInSource.ReadFile(name)
		if err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
		target := filepath.Join(ebin, filepath.Base(name))
		if filepath.Ext(name) == ".erl" {
			target = filepath.Join(source, filepath.Base(name))
			argv = append(argv, target)
		}
		if err := os.WriteFile(target, text, 0o600); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	return r.home.run(ctx, "erlc", append(baseEnv(r.home.dir), "ERL_LIBS="+r.install.lib), argv...)
}

// standInArguments set the switches at a start.
func (r *RabbitMQ) standInArguments() []string {
	return []string{
		// Mnesia writes the whole table anew each time its log has grown by so many records; its default of 1,000 makes
		// the broker busy with that. What a kill loses depends on the log's own buffer alone.
		"-mnesia", "dump_log_write_threshold", "50000",
		"-" + standInPlugin, "lose", strconv.Itoa(r.lose),
		"-" + standInPlugin, "stuck", strconv.FormatBool(r.stuck),
	}
}

// SetLose makes the stand-in lose every nth of the messages that it accepts for
// a delay, counted from this call: they are confirmed and not stored. 1 loses
// all, 0 none. It holds over restarts.
func (r *RabbitMQ) SetLose(ctx context.Context, nth int) error {
	return r.set(ctx, func() { r.lose = nth }, "lose", strconv.Itoa(nth))
}

// SetStuck makes the stand-in accept, confirm and store messages and fire none.
// Switched off, what has come due meanwhile fires at once. It holds over
// restarts.
func (r *RabbitMQ) SetStuck(ctx context.Context, stuck bool) error {
	return r.set(ctx, func() { r.stuck = stuck }, "stuck", strconv.FormatBool(stuck))
}

func (r *RabbitMQ) set(ctx context.Context, remember func(), key, value string) error {
	if r.config.Plugin != ExchangeStandIn {
		return errNoSwitch
	}
	_, err := r.Eval(ctx, fmt.Sprintf("%s_store:switch(%s, %s).", standInPlugin, key, value))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	remember()
	return nil
}
