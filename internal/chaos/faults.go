package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/internal/devenv"
)

// Kind names what is done.
type Kind string

// The kinds of faults. What is killed is started again, and what is taken away is given back, when the fault ends.
const (
	KillBroker       Kind = "kill broker"
	WipeBroker       Kind = "wipe broker" // kill -9, and its data directory is removed
	PauseBroker      Kind = "pause broker"
	CutBroker        Kind = "cut broker link"
	HalfOpenBroker   Kind = "half-open broker link"
	SlowBroker       Kind = "2 s latency to broker"
	StarveBroker     Kind = "no bandwidth to broker"
	MemoryAlarm      Kind = "memory alarm"
	UnbindWork       Kind = "delete binding of work queue"
	UnbindDelay      Kind = "delete binding of delay exchange"
	DisablePlugin    Kind = "disable plugin"          // of the delayed exchange; what that held is gone
	LoseConfirmed    Kind = "lose what was confirmed" // every second delayed message
	KillDatabase     Kind = "kill database"
	PauseDatabase    Kind = "pause database"
	CutDatabase      Kind = "cut database link"
	HalfOpenDatabase Kind = "half-open database link"
	SlowDatabase     Kind = "2 s latency to database"
	StarveDatabase   Kind = "no bandwidth to database"
	KillWorker       Kind = "kill worker"
	PauseWorker      Kind = "pause worker"
	KillAPI          Kind = "kill api"
)

// kind is what there is to know about a Kind.
type kind struct {
	name   Kind
	target string // two faults at a time never have the same
	// How long it lasts, and about how long it takes to be undone.
	least, most, undoing time.Duration
	one, some            bool // it befalls one worker; or one or everybody
	// silent says that messages which the broker has confirmed are lost and nothing tells: they have to wait for the grace.
	silent bool
	// inflict does it and returns how to undo it.
	inflict func(ctx context.Context, s *stage, f Fault) (undo, error)
}

type undo func(ctx context.Context) error

const (
	second       = time.Second
	processBack  = 8 * second // about how long a service takes to start
	pauseLasts   = 10 * second
	longestFault = 8 * second
)

// kinds lists what can be done where the delayed exchange is provided by exchange.
func kinds(exchange string) []kind {
	all := []kind{
		{KillBroker, "broker", 0, 3 * second, processBack, false, false, false, killBroker},
		{WipeBroker, "broker", 0, 3 * second, processBack, false, false, false, wipeBroker},
		{PauseBroker, "broker", pauseLasts, pauseLasts, 0, false, false, false, pauseBroker},
		{CutBroker, "broker", 1 * second, longestFault, 0, false, true, false, toBroker((*link).cut)},
		{HalfOpenBroker, "broker", 3 * second, longestFault, 0, false, true, false, toBroker((*link).halfOpen)},
		{SlowBroker, "broker", 3 * second, longestFault, 0, false, true, false, toBroker((*link).slow)},
		{StarveBroker, "broker", 3 * second, longestFault, 0, false, true, false, toBroker((*link).starve)},
		{MemoryAlarm, "broker", 3 * second, longestFault, second, false, false, false, memoryAlarm},
		{UnbindWork, "broker", 3 * second, 6 * second, 0, false, false, false, unbindWork},
		{UnbindDelay, "broker", 3 * second, 6 * second, 0, false, false, false, unbindDelay},
		{KillDatabase, "database", 0, 3 * second, processBack, false, false, false, killDatabase},
		{PauseDatabase, "database", pauseLasts, pauseLasts, 0, false, false, false, pauseDatabase},
		{CutDatabase, "database", 1 * second, longestFault, 0, false, true, false, toDatabase((*link).cut)},
		{HalfOpenDatabase, "database", 3 * second, longestFault, 0, false, true, false, toDatabase((*link).halfOpen)},
		{SlowDatabase, "database", 3 * second, longestFault, 0, false, true, false, toDatabase((*link).slow)},
		{StarveDatabase, "database", 3 * second, longestFault, 0, false, true, false, toDatabase((*link).starve)},
		{KillWorker, "worker", 0, 5 * second, 0, true, false, false, killWorker},
		{PauseWorker, "worker", pauseLasts, pauseLasts, 0, true, false, false, pauseWorker},
		{KillAPI, "api", 0, 3 * second, 0, false, false, false, killAPI},
	}
	if exchange != devenv.ExchangeNone {
		all = append(all, kind{DisablePlugin, "broker", 3 * second, 6 * second, second, false, false, true, disablePlugin})
	}
	if exchange == devenv.ExchangeStandIn {
		all = append(all, kind{LoseConfirmed, "broker", 3 * second, 6 * second, 0, false, false, true, loseConfirmed})
	}
	return all
}

func find(all []kind, name Kind) (kind, bool) {
	for _, k := range all {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

func killBroker(_ context.Context, s *stage, _ Fault) (undo, error) {
	return s.broker.Start, s.broker.Kill()
}

func wipeBroker(_ context.Context, s *stage, _ Fault) (undo, error) {
	return s.broker.Start, s.broker.Wipe()
}

func pauseBroker(_ context.Context, s *stage, _ Fault) (undo, error) {
	return func(context.Context) error { return s.broker.Resume() }, s.broker.Pause()
}

func killDatabase(_ context.Context, s *stage, _ Fault) (undo, error) {
	return s.database.Start, s.database.Kill()
}

func pauseDatabase(_ context.Context, s *stage, _ Fault) (undo, error) {
	return func(context.Context) error { return s.database.Resume() }, s.database.Pause()
}

func killWorker(_ context.Context, s *stage, f Fault) (undo, error) {
	return s.kill(s.workers[f.Victim]), nil
}
func killAPI(_ context.Context, s *stage, _ Fault) (undo, error) { return s.kill(s.api), nil }

func (s *stage) kill(m *member) undo {
	m.kill()
	return func(ctx context.Context) error { return m.start(ctx) }
}

func pauseWorker(_ context.Context, s *stage, f Fault) (undo, error) {
	m := s.workers[f.Victim]
	return func(context.Context) error { return m.signal(syscall.SIGCONT) }, m.signal(syscall.SIGSTOP)
}

// toBroker and toDatabase do something to the victim's links.
func toBroker(do func(*link) (undo, error)) func(context.Context, *stage, Fault) (undo, error) {
	return func(_ context.Context, s *stage, f Fault) (undo, error) {
		return onLinks(s, f, do, func(m *member) *link { return m.toBroker })
	}
}

func toDatabase(do func(*link) (undo, error)) func(context.Context, *stage, Fault) (undo, error) {
	return func(_ context.Context, s *stage, f Fault) (undo, error) {
		return onLinks(s, f, do, func(m *member) *link { return m.toDatabase })
	}
}

func onLinks(s *stage, f Fault, do func(*link) (undo, error), of func(*member) *link) (undo, error) {
	victims := s.members()
	if f.Victim != everyone {
		victims = s.workers[f.Victim : f.Victim+1]
	}
	var (
		undos []undo
		errs  []error
	)
	for _, m := range victims {
		if l := of(m); l != nil { // the api has none to the broker
			u, err := do(l)
			undos, errs = append(undos, u), append(errs, err)
		}
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, u := range undos {
			errs = append(errs, u(ctx))
		}
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

func memoryAlarm(ctx context.Context, s *stage, _ Fault) (undo, error) {
	set := func(ctx context.Context, watermark string) error {
		_, err := s.broker.Ctl(ctx, "set_vm_memory_high_watermark", watermark)
		return err
	}
	return func(ctx context.Context) error { return set(ctx, "0.4") }, set(ctx, "0")
}

func disablePlugin(ctx context.Context, s *stage, _ Fault) (undo, error) {
	return func(ctx context.Context) error { return s.broker.SetPlugin(ctx, true) }, s.broker.SetPlugin(ctx, false)
}

func loseConfirmed(ctx context.Context, s *stage, _ Fault) (undo, error) {
	return func(ctx context.Context) error { return s.broker.SetLose(ctx, 0) }, s.broker.SetLose(ctx, 2)
}

func unbindWork(ctx context.Context, s *stage, _ Fault) (undo, error) {
	const queue, key, exchange = namespace + ".work.order.expire", "order.expire", namespace + ".deliver"
	return func(ctx context.Context) error {
		return s.onChannel(ctx, func(ch *amqp.Channel) error { return ch.QueueBind(queue, key, exchange, false, nil) })
	}, s.onChannel(ctx, func(ch *amqp.Channel) error { return ch.QueueUnbind(queue, key, exchange, nil) })
}

func unbindDelay(ctx context.Context, s *stage, _ Fault) (undo, error) {
	const to, key, from = namespace + ".deliver", "#", namespace + ".delay"
	return func(ctx context.Context) error {
		return s.onChannel(ctx, func(ch *amqp.Channel) error { return ch.ExchangeBind(to, key, from, false, nil) })
	}, s.onChannel(ctx, func(ch *amqp.Channel) error { return ch.ExchangeUnbind(to, key, from, false, nil) })
}

// onChannel does something to the broker behind everybody's back. What is not there needs nothing done.
func (s *stage) onChannel(ctx context.Context, do func(*amqp.Channel) error) (err error) {
	conn, err := amqp.DialConfig(s.broker.URL(), amqp.Config{Dial: dialUntil(ctx)})
	if err != nil {
		return fmt.Errorf("reach the broker: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("reach the broker: %w", err)
	}
	err = do(ch)
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.NotFound {
		return nil
	}
	return err
}
