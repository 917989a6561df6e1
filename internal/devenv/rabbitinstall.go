package devenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// installation is the RabbitMQ that this machine has.
type installation struct {
	server   string // the server's script, not the wrapper that changes user
	ctl      string // rabbitmqctl beside it
	lib      string // the folder of the broker's own applications
	erlang   string // the folder of Erlang's applications; empty if it cannot be told
	core     string // the broker's own folder in it, NAME-VERSION
	upstream string // the upstream plugin, a folder or .ez; empty if not installed
	version  string
	epmd     string
}

func findInstallation() (*installation, error) {
	// Debian's place first: on its PATH is the wrapper. Then that of the
	// official image, and what else there is.
	server, err := program("rabbitmq-server",
		"/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/rabbitmq/sbin/rabbitmq-server", "rabbitmq-server")
	if err != nil {
		return nil, err
	}
	epmd, err := program("epmd", "epmd")
	if err != nil {
		return nil, err
	}
	script, err := filepath.EvalSymlinks(server)
	if err != nil {
		return nil, fmt.Errorf("devenv: %w", err)
	}
	lib := filepath.Join(filepath.Dir(filepath.Dir(script)), "plugins")
	core := newest(lib, "rabbit")
	if core == "" {
		return nil, fmt.Errorf("devenv: no rabbit-VERSION in %s", lib)
	}
	i := &installation{
		server:   server,
		ctl:      filepath.Join(filepath.Dir(server), "rabbitmqctl"),
		lib:      lib,
		core:     core,
		upstream: newest("/usr/lib/rabbitmq/plugins", upstreamPlugin),
		version:  strings.TrimPrefix(filepath.Base(core), "rabbit-"),
		epmd:     epmd,
	}
	if i.upstream == "" {
		i.upstream = newest(lib, upstreamPlugin)
	}
	if erl, err := program("erl", "erl"); err == nil {
		if erl, err = filepath.EvalSymlinks(erl); err == nil {
			i.erlang = filepath.Join(filepath.Dir(filepath.Dir(erl)), "lib")
		}
	}
	return i, nil
}

// gather makes dir with links to the modules of all these applications. An
// Erlang that looks there first finds each at once; it would try some ninety
// folders otherwise, which is nearly half the work of a start.
func (i *installation) gather(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, lib := range []string{i.lib, i.erlang} {
		if lib == "" {
			continue
		}
		// The pattern is well-formed, which is all that Glob can complain about.
		modules, _ := filepath.Glob(filepath.Join(lib, "*", "ebin", "*.beam"))
		for _, module := range slices.Backward(modules) { // of two versions the newer one
			if err := os.Symlink(module, filepath.Join(dir, filepath.Base(module))); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}

// newest is the path of an installed plugin, empty if there is none.
func newest(dir, plugin string) string {
	// The pattern is well-formed, which is all that Glob can complain about.
	found, _ := filepath.Glob(filepath.Join(dir, plugin+"-[0-9]*"))
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// major is the broker's major version, 0 if it cannot be told.
func (i *installation) major() int {
	text, _, _ := strings.Cut(i.version, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// exchange decides what gives the broker the type x-delayed-message.
func (i *installation) exchange(wanted string) (string, error) {
	switch wanted {
	case ExchangeNone:
		return wanted, nil
	case ExchangePlugin:
		if i.upstream == "" {
			return "", &MissingError{Program: upstreamPlugin}
		}
		return wanted, nil
	case ExchangeStandIn:
		return wanted, i.canStandIn()
	case "":
		if i.upstream != "" {
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
