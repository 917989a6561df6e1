package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1) //nolint:gocritic // the context's signals end with the process
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	if text := os.Getenv(settingsVariable); text != "" {
		return runChild(ctx, text)
	}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	fast := flags.Bool("fast", false, "2,000 orders, shorter times, and of the timeline: "+strings.Join(fastPhases(), ", ")+"; what other flags ask for beyond 2,000 orders, 300 alone and 2,000 waiting is lowered to that")
	only := flags.String("only", "", "contenders, with commas between them; default all")
	parts := flags.String("phases", "", "parts of the timeline, with commas between them; default all, with -fast four")
	docs := flags.String("docs", "", "write comparison.md, comparison.json and plots into this `DIR`; default: comparison.json to standard output")
	orders := flags.Int("orders", 20_000, "orders of each contender")
	quiet := flags.Int("quiet", 2000, "orders of each contender in its run alone; 0: no such run")
	waiting := flags.Int("waiting", 20_000, "orders that wait while memory is measured")
	lines := flags.String("lines", "", "measure nothing, take the results of this `FILE`, a comparison.json")
	flags.SetOutput(log)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("arguments that are no flags: %s", strings.Join(flags.Args(), " "))
	case *orders < 1 || *waiting < 1 || *quiet < 0:
		return fmt.Errorf("-orders %d, -waiting %d and -quiet %d: there is at least one order, but for -quiet", *orders, *waiting, *quiet)
	}
	var found results
	if *lines != "" {
		if *docs == "" || *only != "" || *parts != "" {
			return errors.New("-lines goes with -docs, and with nothing that is measured")
		}
		var err error
		if found, err = read(*lines); err != nil {
			return err
		}
	} else {
		c := comparison{fast: *fast, orders: *orders, quiet: *quiet, waiting: *waiting, log: log}
		if *fast {
			c.phases = fastPhases()
			c.orders, c.quiet, c.waiting = min(c.orders, 2000), min(c.quiet, 300), min(c.waiting, 2000)
		}
		if *parts != "" {
			c.phases = strings.Split(*parts, ",")
		}
		var err error
		if err = known("-phases", c.phases, phaseNames()); err != nil {
			return err
		}
		if c.entries, err = chosen(*only); err != nil {
			return err
		}
		if err = probe(*docs); err != nil { // before an hour has passed
			return err
		}
		found, err = c.run(ctx)
		found.Arguments = args
		if err != nil {
			return errors.Join(err, write(out, found)) // what there is of an hour
		}
	}
	if *docs == "" {
		return errors.Join(write(out, found), found.failure())
	}
	files, err := report(found)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := write(&text, found); err != nil {
		return err
	}
	files["comparison.json"] = text.Bytes()
	if err := probe(*docs); err != nil {
		return err
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(*docs, name), text, 0o644)) //nolint:gosec // a part of the repository
	}
	return errors.Join(err, found.failure())
}

// probe makes the folder that results go into, and tries to write there.
func probe(docs string) error {
	if docs == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(docs, plots), 0o755); err != nil { //nolint:gosec // a part of the repository
		return err
	}
	for _, dir := range []string{docs, filepath.Join(docs, plots)} {
		f, err := os.CreateTemp(dir, ".probe")
		if err != nil {
			return err
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// chosen are the contenders with these names, with commas between them; empty: all.
func chosen(only string) ([]entry, error) {
	all := entries()
	if only == "" {
		return all, nil
	}
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.name
	}
	wanted := strings.Split(only, ",")
	return slices.DeleteFunc(all, func(e entry) bool { return !slices.Contains(wanted, e.name) }), known("-only", wanted, names)
}

func known(flag string, wanted, names []string) error {
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s: there is no %q, but %s", flag, name, strings.Join(names, ", "))
		}
	}
	return nil
}
