// Command suite runs the chaos suite: the real system under faults drawn from a seed, and the check of what came of it.
//
// It ends with code 0 if every promise was kept, 1 if not, and 2 if it could not run. With --without it runs a build that lacks a
// part, and ends with code 0 if the check has seen what that part prevents.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/duebox/duebox/internal/chaos"
)

const (
	kept = iota
	broken
	cannotRun
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = cannotRun
	}
	os.Exit(code)
}

func run(ctx context.Context) (code int, err error) {
	o := chaos.Options{Out: os.Stderr}
	minutes := flag.Float64("minutes", 5, "about how long there are faults")
	flag.Uint64Var(&o.Seed, "seed", 0, "draws faults and load; 0: a random one")
	flag.Float64Var(&o.Rate, "rate", 8, "orders placed in a second")
	program := flag.String("program", ".bin/duebox", "the duebox program")
	flag.StringVar(&o.Logs, "logs", ".tmp/chaos", "folder for what the processes say")
	flag.StringVar(&o.Strategy, "strategy", "", "the workers' DELAY_STRATEGY; default: drawn from the seed")
	faults := flag.String("faults", "", "kinds of faults, separated by commas, each for five seconds, instead of what the seed draws")
	without := flag.String("without", "", "what the program was built without: guard, epoch or reconcile")
	flag.Parse()
	if o.Seed == 0 {
		o.Seed = 1 + rand.Uint64N(1_000_000) //nolint:gosec // a name for a run
	}
	o.For = time.Duration(*minutes * float64(time.Minute))
	if o.Program, err = filepath.Abs(*program); err != nil {
		return cannotRun, err
	}
	for name := range strings.SplitSeq(*faults, ",") {
		if name != "" {
			o.Faults = append(o.Faults, chaos.Fault{Kind: chaos.Kind(name), Victim: -1, Lasts: 5 * time.Second})
		}
	}
	if *without != "" {
		return lacking(ctx, o, *without)
	}
	report, err := chaos.Run(ctx, o)
	if err != nil {
		return cannotRun, err
	}
	if len(report.Violations) > 0 {
		code = broken
	}
	return code, report.Print(os.Stdout)
}

func lacking(ctx context.Context, o chaos.Options, part string) (code int, err error) {
	for _, w := range chaos.Parts() {
		if w.Part != part {
			continue
		}
		report, err := chaos.Run(ctx, w.Apply(o))
		if err != nil {
			return cannotRun, err
		}
		if err := report.Print(os.Stdout); err != nil {
			return cannotRun, err
		}
		if !report.Broke(w.Breaks) {
			fmt.Fprintf(os.Stdout, "\nwithout %s: NOT SEEN: %q was kept\n", part, w.Breaks)
			return broken, nil
		}
		fmt.Fprintf(os.Stdout, "\nwithout %s: seen: %q was broken, as it must be\n", part, w.Breaks)
		return kept, nil
	}
	return cannotRun, fmt.Errorf("--without: is %.40q, want guard, epoch or reconcile", part)
}
