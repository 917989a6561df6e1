package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// tolerated is the part of a stored figure that a measurement must reach; where less is better, the stored figure must be that part of it.
const tolerated = 0.8

// kept is what is remembered of a measurement, to tell whether a later one is worse.
type kept struct {
	Bench   string  `json:"bench"`
	Variant string  `json:"variant"`
	Unit    string  `json:"unit"`
	Of      string  `json:"of"` // "ratio" or "median"
	Figure  float64 `json:"figure"`
}

// keep returns what is to be remembered of a line; false if its figure says more about the machine than about the code. A ratio is of two
// measurements of one run. Of what has none, memory and numbers of queries are the same on any machine, and times are not.
func keep(l line) (kept, bool) {
	k := kept{Bench: l.Bench, Variant: l.Variant, Unit: l.Unit, Of: "ratio"}
	switch {
	case l.Ratio != nil:
		k.Figure = *l.Ratio
	case l.Unit == unitMemory || l.Unit == unitQueries:
		k.Of, k.Figure = "median", l.Median
	default:
		return kept{}, false
	}
	return k, true
}

const (
	unitMemory  = "MiB"
	unitQueries = "queries/s" // that are needed to do nothing: few are good
)

// lessIsBetter tells what is good: of times, memory and queries little, and of all other rates much.
func lessIsBetter(unit string) bool { return unit == unitQueries || !strings.HasSuffix(unit, "/s") }

// guard holds measurements against what is stored of earlier ones.
type guard map[[2]string]kept

// readGuard reads a stored file. Without a name, or without the file, there is nothing to hold measurements against; a named file that is not
// there is said, so that nobody takes a run that was held against nothing for one that has passed.
func readGuard(file string, log io.Writer) (guard, error) {
	g := guard{}
	if file == "" {
		return g, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the caller names the file
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(log, "bench: there is no %s: nothing is stored, so nothing is held against it\n", file)
		return g, nil
	}
	var all []kept
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read stored figures: %w", err)
	}
	for _, k := range all {
		g[[2]string{k.Bench, k.Variant}] = k
	}
	return g, nil
}

// report prints a measurement, and what is wrong with it, and returns the exit code that it asks for.
func (g guard) report(l line, out, log io.Writer) int {
	code := report(l, out, log)
	if err := g.check(l); err != nil {
		fmt.Fprintln(log, "bench:", err)
		return 1
	}
	return code
}

// check returns an error if l is worse than what is stored of it allows. A variant names its sizes, so a run with others is not held against
// anything.
func (g guard) check(l line) error {
	now, ok := keep(l)
	stored, known := g[[2]string{l.Bench, l.Variant}]
	if !ok || !known || stored.Of != now.Of {
		return nil
	}
	worse := now.Figure < tolerated*stored.Figure
	if lessIsBetter(l.Unit) {
		worse = tolerated*now.Figure > stored.Figure
	}
	if !worse {
		return nil
	}
	return fmt.Errorf("%s: %s: the %s is %v, and %v is stored: worse than %v of that", l.Bench, l.Variant, now.Of, now.Figure, stored.Figure, tolerated)
}
