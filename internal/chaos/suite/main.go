// Command suite runs the chaos suite: the real system under faults drawn from a seed, and the check of what came of it.
//
// It ends with code 0 if every promise was kept, 1 if not, and 2 if it could not run.
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

func main() { os.Exit(run()) }

func run() int {
	minutes := flag.Float64("minutes", 5, "about how long there are faults")
	seed := flag.Uint64("seed", 0, "draws faults and load; 0: a random one")
	program := flag.String("program", ".bin/duebox", "the duebox program")
	logs := flag.String("logs", ".tmp/chaos", "folder for what the processes say")
	strategy := flag.String("strategy", "auto", "the workers' DELAY_STRATEGY")
	faults := flag.String("faults", "", "instead of what the seed draws: kinds of faults, separated by commas, each for five seconds")
	flag.Parse()
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1_000_000) //nolint:gosec // a name for a run
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	path, err := filepath.Abs(*program)
	if err != nil {
		return fail(err)
	}
	o := chaos.Options{
		Program: path, Seed: *seed, For: time.Duration(*minutes * float64(time.Minute)), Strategy: *strategy, Logs: *logs, Out: os.Stderr,
	}
	for name := range strings.SplitSeq(*faults, ",") {
		if name != "" {
			o.Faults = append(o.Faults, chaos.Fault{Kind: chaos.Kind(name), Victim: -1, Lasts: 5 * time.Second})
		}
	}
	report, err := chaos.Run(ctx, o)
	if err != nil {
		return fail(err)
	}
	if err := report.Print(os.Stdout); err != nil {
		return fail(err)
	}
	if len(report.Violations) > 0 {
		return 1
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "chaos:", err)
	return 2
}
