package devenv

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const (
	upstreamPlugin = "rabbitmq_delayed_message_exchange"
	standInPlugin  = "duebox_standin"
	standInFolder  = standInPlugin + "-1.0.0"
)

var (
	errNoStandIn = errors.New("devenv: the stand-in needs a RabbitMQ before 4.0, whose exchange types live in Mnesia")
	errNoSwitch  = errors.New("devenv: only the stand-in has the switches Lose and Stuck")
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

// compileStandIn builds the plugin in dir with the broker's own headers.
func (i *installation) compileStandIn(ctx context.Context, dir string) error {
	erlc, err := program("erlc", "erlc")
	if err != nil {
		return err
	}
	ebin := filepath.Join(dir, standInFolder, "ebin")
	if err := os.MkdirAll(ebin, 0o700); err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	source := filepath.Join(dir, "..", "standin")
	if err := os.MkdirAll(source, 0o700); err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	files, err := fs.Glob(standInSource, "standin/*")
	if err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	args := []string{"-Werror", "-o", ebin}
	for _, name := range files {
		text, err := standInSource.ReadFile(name)
		if err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
		target := filepath.Join(ebin, filepath.Base(name))
		if filepath.Ext(name) == ".erl" {
			target = filepath.Join(source, filepath.Base(name))
			args = append(args, target)
		}
		if err := os.WriteFile(target, text, 0o600); err != nil {
			return fmt.Errorf("devenv: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, erlc, args...)
	cmd.Env = append(baseEnv(filepath.Dir(source)), "ERL_LIBS="+i.lib)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("devenv: erlc: %w: %s", err, out)
	}
	return nil
}

// standInArguments set the switches at a start.
func (r *RabbitMQ) standInArguments() []string {
	return []string{
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
