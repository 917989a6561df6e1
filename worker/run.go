package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Run works until ctx ends, and then drains within Config.DrainTimeout:
//
//  1. The relay takes no more work, gets the outcome of what is in flight, settles it and gives its shards back. Routines
//     are told to end.
//  2. The consumers take no more deliveries, finish and acknowledge those that are being handled, and close.
//  3. The publisher closes, and last the HTTP listener, so that probes are answered until then; /readyz says 503.
//
// It returns nil after a complete drain. An error at the beginning says that the address cannot be listened on; everything
// else that goes wrong is logged and tried again.
func (w *Worker) Run(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.cfg.HTTPAddr)
	if err != nil {
		return err // it says: listen, and where
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Each of these ends when the one before it has been drained.
	relaying, stopRelay := context.WithCancel(context.WithoutCancel(ctx))
	consuming, stopConsumer := context.WithCancel(context.WithoutCancel(ctx))
	publishing, stopPublisher := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRelay()
	defer stopConsumer()
	defer stopPublisher()

	// What ends before it is told to ends the worker.
	run := func(what string, part func(context.Context) error, partCtx context.Context) *outcome {
		o := &outcome{done: make(chan struct{})}
		go func() {
			defer close(o.done)
			if o.err = part(partCtx); o.err != nil {
				o.err = fmt.Errorf("%s: %w", what, o.err)
			}
			cancel(o.err)
		}()
		return o
	}
	http := w.serve(ctx, ln, cancel)
	publisher := run("publisher", w.publisher.Run, publishing)
	consumer := run("consumer", w.consumer.Run, consuming)
	relay := run("relay", func(ctx context.Context) error {
		w.awaitConsumers(ctx)
		return w.relay.Run(ctx)
	}, relaying)
	var rearming sync.WaitGroup
	rearming.Go(func() { w.rearm(ctx) })
	clock := w.startClock(ctx)
	rearming.Go(func() { w.warnOfIsolation(ctx) })
	w.log.InfoContext(ctx, "worker runs", "addr", ln.Addr().String())

	<-ctx.Done()
	w.draining.Store(true)
	w.log.InfoContext(ctx, "draining", "limit_seconds", w.cfg.DrainTimeout.Seconds())
	routines := clock.Stop()
	stopRelay()
	<-relay.done
	stopConsumer()
	<-consumer.done
	stopPublisher()
	<-publisher.done
	rearming.Wait()
	<-routines.Done()
	err = errors.Join(relay.err, consumer.err, publisher.err, http())
	w.log.InfoContext(ctx, "worker has ended")
	return err
}

// awaitConsumers gives the consumers time to bind their queues before the first message is published: what finds no queue
// takes the long way, through the database and a repair. It is no condition, as the broker may be away.
func (w *Worker) awaitConsumers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for have, want := w.consumer.Consuming(); have < want && pause(ctx, 20*time.Millisecond); {
		have, want = w.consumer.Consuming()
	}
}

// outcome is how a part of the worker has ended; err is valid after done.
type outcome struct {
	done chan struct{}
	err  error
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
