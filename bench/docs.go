package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// writeDocs writes benchmarks.md, a plot for each benchmark in benchmarks, and benchmarks.json with the figures for the guard, in dir. The lines
// are those of a file if one is named.
func writeDocs(dir, file string, lines []line) error {
	if file != "" {
		f, err := os.Open(file) //nolint:gosec // the caller names the file
		if err != nil {
			return err
		}
		lines, err = readLines(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return errors.New("there is no measurement")
	}
	m, err := thisMachine()
	if err != nil {
		return err
	}
	files, err := page(m, lines)
	if err != nil {
		return err
	}
	// What is not measured any more has no plot.
	old, err := filepath.Glob(filepath.Join(dir, plots, "*.svg"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, plots), 0o755); err != nil { //nolint:gosec // a part of the repository
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil { //nolint:gosec // a part of the repository
			return err
		}
	}
	return nil
}

const plots = "benchmarks"

// command is what measures the lines of a benchmark again, as they were.
func command(lines []line) string {
	l := lines[0]
	if l.Flags == "" {
		return "make bench BENCH=" + l.Bench
	}
	return "make .bin/bench && .bin/bench " + l.Flags + " " + l.Bench
}

// page makes the files: their names in the documentation's folder, and their texts.
func page(m machine, lines []line) (map[string][]byte, error) {
	var (
		md     bytes.Buffer
		stored []kept
		names  []string
		groups = map[string][]line{}
	)
	for _, l := range lines {
		if groups[l.Bench] == nil {
			names = append(names, l.Bench)
		}
		groups[l.Bench] = append(groups[l.Bench], l)
		if k, ok := keep(l); ok {
			stored = append(stored, k)
		}
	}
	text, err := json.MarshalIndent(stored, "", "  ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"benchmarks.json": append(text, '\n')}
	writeHead(&md, m, lines)
	for _, name := range names {
		plot := filepath.Join(plots, name+".svg")
		files[plot] = drawPlot(groups[name])
		fmt.Fprintf(&md, "\n## %s\n\n`%s`\n\n![%s](%s)\n\n", name, command(groups[name]), name, plot)
		if err := writeTable(&md, groups[name]); err != nil {
			return nil, err
		}
	}
	files["benchmarks.md"] = md.Bytes()
	return files, nil
}

func writeHead(md *bytes.Buffer, m machine, lines []line) {
	md.WriteString(`# Benchmarks

Written by ` + "`make bench-docs`" + ` from what it measured; do not edit. Each line is the median of its rounds, with the least and the greatest of
them. What it is held against, "beside", was measured in the same run, mostly in turns with it, or is said to be quoted. Figures of different machines
cannot be compared; ratios can. What was measured through the stand-in for the delayed exchange says so.

| | |
|---|---|
`)
	fmt.Fprintf(md, "| processor | %s, %d cores |\n| memory | %.1f GiB |\n| Go | %s |\n", cell(m.cpu), m.cores, float64(m.memory)/(1<<30), cell(m.golang))
	for _, row := range []struct {
		what string
		of   func(l line) string
	}{
		{"database", func(l line) string { return databaseName(l.Database) }},
		{"RabbitMQ", func(l line) string { return l.Broker }},
		{"delayed exchange", func(l line) string { return l.Exchange }},
		{"`innodb_flush_log_at_trx_commit`", func(l line) string {
			if l.FlushAtCommit == nil {
				return ""
			}
			return fmt.Sprint(*l.FlushAtCommit)
		}},
		{"`innodb_buffer_pool_size`", func(l line) string {
			if l.BufferPoolMB == 0 {
				return ""
			}
			return fmt.Sprintf("%.0f MiB (%s)", l.BufferPoolMB, strings.Join(benchesWith(lines, l.BufferPoolMB), ", "))
		}},
	} {
		var all []string
		for _, l := range lines {
			if text := row.of(l); text != "" && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
		if len(all) > 0 {
			fmt.Fprintf(md, "| %s | %s |\n", row.what, cell(strings.Join(all, "; ")))
		}
	}
}

func benchesWith(lines []line, pool float64) (names []string) {
	for _, l := range lines {
		if l.BufferPoolMB == pool && !slices.Contains(names, l.Bench) {
			names = append(names, l.Bench)
		}
	}
	return names
}

// databaseName makes of what a server says of its version a product and a number: how a distribution has packed it says where it ran.
func databaseName(version string) string {
	number, rest, _ := strings.Cut(version, "-")
	if strings.HasPrefix(rest, "MariaDB") {
		return "MariaDB " + number
	}
	if number == "" {
		return ""
	}
	return "MySQL " + number
}

func writeTable(md *bytes.Buffer, lines []line) error {
	md.WriteString("| what | median | least to greatest | rounds | beside | ratio | aim | met | more |\n|---|---:|---:|---:|---:|---:|---:|---|---|\n")
	for _, l := range lines {
		beside, ratio := "", ""
		sign := "≥"
		if lessIsBetter(l.Unit) {
			sign = "≤"
		}
		if l.Ceiling != nil && l.Ratio != nil {
			beside, ratio = fmt.Sprintf("%v %s", *l.Ceiling, l.Unit), fmt.Sprint(*l.Ratio)
		}
		met := "yes"
		if !l.Met {
			met = "**no**"
		}
		more, err := l.more()
		if err != nil {
			return err
		}
		fmt.Fprintf(md, "| %s | %v %s | %v to %v | %d | %s | %s | %s %v | %s | %s |\n",
			cell(l.Variant), l.Median, cell(l.Unit), l.Min, l.Max, l.Rounds, cell(beside), ratio, sign, l.Aim, met, cell(strings.Join(more, ", ")))
	}
	return nil
}

// more are the keys that a line has beyond those that all have, with their values.
func (l line) more() (more []string, err error) {
	// What every line has, what the head of the page says, and what is there twice.
	shown := map[string]bool{
		"bench": true, "variant": true, "unit": true, "rounds": true, "median": true, "min": true, "max": true, "ceiling": true, "ratio": true, "aim": true, "met": true,
		"database": true, "broker": true, "buffer_pool_mb": true, "flush_log_at_commit": true,
		"flags": true, "msgs_per_s": true, "raw_msgs_per_s": true, "queries_per_s": true, "operation": true, "waiting": true, "finished": true,
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil { // the brace
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if name := fmt.Sprint(key); !shown[name] {
			more = append(more, name+" "+strings.NewReplacer(`"`, "", "{", "", "}", "", ":", " ", ",", " ").Replace(string(value)))
		}
	}
	return more, nil
}

// cell is text in a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}
