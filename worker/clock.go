package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/robfig/cron/v3"
)

// timed is a routine and its parsed schedule.
type timed struct {
	Routine

	at cron.Schedule
}

func parseRoutines(routines []Routine) ([]timed, error) {
	var out []timed
	for _, r := range routines {
		if r.Run == nil {
			return nil, fmt.Errorf("worker: routine %q has no Run", r.Name)
		}
		at, err := cron.ParseStandard(r.Schedule)
		if err != nil {
			return nil, fmt.Errorf("worker: schedule %q of %s: %w", r.Schedule, r.Name, err)
		}
		out = append(out, timed{r, at})
	}
	return out, nil
}

// startClock starts the routines, in UTC. They end with ctx; the returned clock is to be stopped and waited for.
func (w *Worker) startClock(ctx context.Context) *cron.Cron {
	// What cron has to say names no routine. A panic does not reach it: one that passes through SkipIfStillRunning of cron v3.0.1
	// would keep its token, and the routine would never run again.
	clock := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger),
		cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
	for _, r := range w.routines {
		clock.Schedule(r.at, cron.FuncJob(func() { w.runRoutine(ctx, r.Routine) }))
	}
	clock.Start()
	return clock
}

func (w *Worker) runRoutine(ctx context.Context, r Routine) {
	defer func() {
		if p := recover(); p != nil {
			w.log.ErrorContext(ctx, "routine panicked", slog.String("routine", r.Name), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	if err := r.Run(ctx); err != nil && ctx.Err() == nil && !w.lacksTables(ctx, err) {
		w.repeats.pass("routine "+r.Name, w.log).ErrorContext(ctx, "routine ended with an error", slog.String("routine", r.Name), slog.Any("error", err))
	}
}
