package devenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// What gives a broker its exchange type x-delayed-message.
const (
	// ExchangePlugin is the upstream plugin, installed on this machine.
	ExchangePlugin = "plugin"
	// ExchangeStandIn is our own stand-in; see the folder standin.
	ExchangeStandIn = "stand-in"
	// ExchangeNone is a broker without the type.
	ExchangeNone = "none"
)

// RabbitConfig says where and how a RabbitMQ runs. The zero value is good.
type RabbitConfig struct {
	// Dir is the folder in which the service makes its own; default
	// os.TempDir().
	Dir string
	// Log receives one line per step; default none. It is written by the
	// goroutine that calls the service's methods.
	Log io.Writer
	// Plugin is one of the Exchange constants. Default: the upstream plugin
	// where it is installed, else the stand-in; on a broker for which the
	// stand-in cannot be built (4.0 and later), none.
	Plugin string
	// Lose and Stuck are the stand-in's switches at every start; see SetLose
	// and SetStuck. With another exchange they are refused.
	Lose  int
	Stuck bool
	// Settings are more lines for rabbitmq.conf.
	Settings []string
}

// RabbitMQ is a private RabbitMQ node with its own port mapper. Its methods may
// be called from any goroutine; those that start or end processes exclude each
// other.
type RabbitMQ struct {
	config   RabbitConfig
	install  *installation
	home     *home
	ports    *ports
	password string

	mu      sync.Mutex
	epmd    *process
	node    *process
	renamed int
	lose    int
	stuck   bool
}

// StartRabbitMQ makes a node with an empty virtual host "/" and returns when it
// answers, which takes about five seconds. Without a deadline in ctx it gives
// up after two minutes; ctx does not bound the node's life. The caller ends it
// with Close. A *MissingError says that the programs are not installed.
func StartRabbitMQ(ctx context.Context, config RabbitConfig) (*RabbitMQ, error) {
	ctx, cancel := limited(ctx, startLimit)
	defer cancel()
	install, err := findInstallation()
	if err != nil {
		return nil, err
	}
	config.Plugin, err = install.exchange(config.Plugin)
	if err != nil {
		return nil, err
	}
	if config.Plugin != ExchangeStandIn && (config.Lose != 0 || config.Stuck) {
		return nil, errNoSwitch
	}
	return startFirst(ctx, config.Log, portsUsed, func(p *ports) (*RabbitMQ, error) {
		h, err := newHome(config.Dir, "rabbitmq")
		if err != nil {
			return nil, err
		}
		r := &RabbitMQ{
			config: config, install: install, home: h, ports: p,
			password: secret(), lose: config.Lose, stuck: config.Stuck,
		}
		if err := r.prepare(ctx); err != nil {
			return nil, errors.Join(err, h.close())
		}
		return r, nil
	})
}

// URL is the address of the virtual host "/" for an administrator.
func (r *RabbitMQ) URL() string {
	return fmt.Sprintf("amqp://%s:%s@127.0.0.1:%d/", userName, r.password, r.Port())
}

// Port is the AMQP port on 127.0.0.1. It stays the same over restarts.
func (r *RabbitMQ) Port() int { return r.ports.base }

// Exchange is one of the Exchange constants.
func (r *RabbitMQ) Exchange() string { return r.config.Plugin }

// LogFile is the path of the node's log. It goes with Close.
func (r *RabbitMQ) LogFile() string { return r.home.path("log", "rabbitmq.log") }

// PID is the process id of the node (the Erlang VM), 0 while it does not run.
func (r *RabbitMQ) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.node.running() {
		return 0
	}
	return r.node.pid
}

// Start starts the node again on the same port, name and data and returns when
// it answers. If it fails, nothing is left running.
func (r *RabbitMQ) Start(ctx context.Context) error {
	ctx, cancel := limited(ctx, startLimit)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node.running() {
		return errRunning
	}
	began := time.Now()
	if err := r.startEpmd(ctx); err != nil {
		return err
	}
	p, err := r.home.start("rabbitmq", r.home.path("log", "console.log"), r.environment(), r.install.server)
	if err != nil {
		return errors.Join(err, r.epmd.kill())
	}
	r.node = p
	if err := awaitReady(ctx, p, r.home.path("log", "console.log"), r.ping); err != nil {
		return errors.Join(fmt.Errorf("devenv: start rabbitmq-server: %w", err), r.kill())
	}
	say(r.config.Log, "RabbitMQ %s (exchange: %s) listens on 127.0.0.1:%d after %.1f s",
		r.install.version, r.config.Plugin, r.Port(), time.Since(began).Seconds())
	return nil
}

// startEpmd starts the port mapper, and does not return before it listens:
// an Erlang that does not find one starts a daemon that outlives it.
func (r *RabbitMQ) startEpmd(ctx context.Context) error {
	log := r.home.path("log", "epmd.log")
	port := strconv.Itoa(r.epmdPort())
	p, err := r.home.start("epmd", log, r.environment(), r.install.epmd, "-port", port, "-address", "127.0.0.1")
	if err != nil {
		return err
	}
	r.epmd = p
	err = awaitReady(ctx, p, log, func(ctx context.Context) error {
		return touch(ctx, "127.0.0.1:"+port)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("devenv: start epmd: %w", err), p.kill())
	}
	return nil
}

// ping opens a connection and closes it.
func (r *RabbitMQ) ping(ctx context.Context) error {
	conn, err := amqp.DialConfig(r.URL(), amqp.Config{
		Dial: func(network, addr string) (net.Conn, error) {
			return dial(ctx, network, addr)
		},
	})
	if err != nil {
		return err
	}
	return conn.Close()
}

// dial returns a connection that ends with ctx's deadline, and after five
// seconds at the latest.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	const limit = 5 * time.Second
	conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(limit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	if err := conn.SetDeadline(end); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func touch(ctx context.Context, addr string) error {
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Stop shuts the node down cleanly. Without a deadline in ctx it waits a
// minute; if the node has not ended then, it is killed and an error returned.
func (r *RabbitMQ) Stop(ctx context.Context) error {
	ctx, cancel := limited(ctx, stopLimit)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.node.signal(syscall.SIGCONT, true)
	err := r.node.stop(ctx)
	if err != nil {
		err = fmt.Errorf("devenv: stop rabbitmq-server: %w", err)
	}
	return errors.Join(err, r.epmd.kill())
}

// Kill is kill -9. It returns when the processes are gone.
func (r *RabbitMQ) Kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kill()
}

func (r *RabbitMQ) kill() error { return errors.Join(r.node.kill(), r.epmd.kill()) }

// Wipe kills the node and removes its data. The next Start makes an empty one
// with the same name and port.
func (r *RabbitMQ) Wipe() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.home.path("data")); err != nil {
		return fmt.Errorf("devenv: wipe: %w", err)
	}
	return nil
}

// Rename kills the node and gives it another name, as a container gets that
// comes back with another host name. The next Start finds none of its data.
func (r *RabbitMQ) Rename() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.kill(); err != nil {
		return err
	}
	r.renamed++
	return nil
}

// Pause freezes the node (SIGSTOP): its sockets stay open and nothing answers.
func (r *RabbitMQ) Pause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.signal(syscall.SIGSTOP, true)
}

// Resume lets a frozen node go on (SIGCONT).
func (r *RabbitMQ) Resume() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.signal(syscall.SIGCONT, true)
}

// Close kills the node and removes its folder. Stop first, if the data has to
// be complete. The value is of no use afterwards.
func (r *RabbitMQ) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.home.close()
	for _, p := range []*process{r.node, r.epmd} {
		if p != nil {
			<-p.done
		}
	}
	r.ports.release()
	return err
}
