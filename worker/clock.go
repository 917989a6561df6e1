package worker

import (
	"context"
	"fmt"
	"log/slog"
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
	log := cronLog{w.log}
	// Skip around Recover and not the other way: a panic that passes through SkipIfStillRunning of cron v3.0.1 would keep
	// its token, and the routine would never run again.
	clock := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(log),
		cron.WithChain(cron.SkipIfStillRunning(log), cron.Recover(log)))
	for _, r := range w.routines {
		clock.Schedule(r.at, cron.FuncJob(func() {
			if err := r.Run(ctx); err != nil && ctx.Err() == nil {
				w.log.ErrorContext(ctx, "routine ended with an error", slog.String("routine", r.Name), slog.Any("error", err))
			}
		}))
	}
	clock.Start()
	return clock
}

// cronLog is cron's log: what it does is of interest when debugging only, but for panics.
type cronLog struct{ log *slog.Logger }

func (l cronLog) Info(msg string, keysAndValues ...any) {
	l.log.Debug("cron", append([]any{"what", msg}, keysAndValues...)...)
}

func (l cronLog) Error(err error, msg string, keysAndValues ...any) {
	l.log.Error("cron", append([]any{"what", msg, "error", err}, keysAndValues...)...)
}
