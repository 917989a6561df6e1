package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// line is one measurement as it is printed. Ratio is Median / Ceiling, so it can be checked from the line itself; both are
// null where nothing is there to compare with.
type line struct {
	Bench   string   `json:"bench"`
	Variant string   `json:"variant"`
	Unit    string   `json:"unit"`
	Rounds  int      `json:"rounds"`
	Median  float64  `json:"median"`
	Min     float64  `json:"min"`
	Max     float64  `json:"max"`
	Ceiling *float64 `json:"ceiling"`
	Ratio   *float64 `json:"ratio"`
	Aim     float64  `json:"aim"`
	Met     bool     `json:"met"`

	MsgsPerS    float64 `json:"msgs_per_s,omitempty"`
	RawMsgsPerS float64 `json:"raw_msgs_per_s,omitempty"`
	P50Ratio    float64 `json:"p50_ratio,omitempty"`
	P99Ratio    float64 `json:"p99_ratio,omitempty"`

	Processes int `json:"processes,omitempty"`

	InFlight          int     `json:"in_flight,omitempty"`
	RearmS            float64 `json:"rearm_s,omitempty"`
	LateAfterRecovery *int    `json:"late_after_recovery,omitempty"`
	LatenessMs        *spread `json:"lateness_ms,omitempty"`
	Strategy          string  `json:"strategy,omitempty"`
	IdleP50Ms         float64 `json:"idle_p50_ms,omitempty"`
	IdleP99Ms         float64 `json:"idle_p99_ms,omitempty"`
	Burst             int     `json:"burst,omitempty"` // messages due within a second
	BurstP99Ms        float64 `json:"burst20k_p99_ms,omitempty"`
	BareIdleP99Ms     float64 `json:"bare_idle_p99_ms,omitempty"` // of the delayed exchange alone
	BareBurstP99Ms    float64 `json:"bare_burst20k_p99_ms,omitempty"`
	Early             *int    `json:"early,omitempty"`
	Rows              int     `json:"rows,omitempty"`
	Seconds           float64 `json:"seconds,omitempty"`
	PeakRSSMB         float64 `json:"peak_rss_mb,omitempty"`
	Exchange          string  `json:"exchange,omitempty"` // what the broker's delayed exchange is: plugin or stand-in

	P50Ms float64 `json:"p50_ms,omitempty"`
	P99Ms float64 `json:"p99_ms,omitempty"`

	Operation    string  `json:"operation,omitempty"`      // flat: what is called
	Waiting      int     `json:"waiting,omitempty"`        // rows that wait
	Finished     int     `json:"finished,omitempty"`       // rows beside them that are done
	CPUPercent   float64 `json:"cpu_percent,omitempty"`    // of one core
	QueriesPerS  float64 `json:"queries_per_s,omitempty"`  // that the database was asked
	PublishP50Ms float64 `json:"publish_p50_ms,omitempty"` // from the commit until another consumer has it
	PublishP99Ms float64 `json:"publish_p99_ms,omitempty"`
	Held         int     `json:"held,omitempty"` // messages that the broker holds

	Flags string `json:"flags,omitempty"` // that were given, beside the names

	settings

	required bool // missing the aim is an error
}

// spread is how late messages took effect.
type spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// compared makes the line of a measurement beside its ceiling.
func compared(bench, variant, unit string, measured, ceiling []float64) line {
	l := alone(bench, variant, unit, measured)
	c := round(median(ceiling))
	r := round(median(measured) / median(ceiling))
	l.Ceiling, l.Ratio = &c, &r
	return l
}

// describe says what was measured.
func (l *line) describe(bench, variant string) { l.Bench, l.Variant = bench, variant }

// readLines reads lines as they were printed, also of several runs. Of the same measurement the last counts, in the place of the first.
func readLines(r io.Reader) (lines []line, err error) {
	places := map[[2]string]int{}
	for d := json.NewDecoder(r); ; {
		var l line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("read measurement %d: %w", len(lines)+1, err)
		}
		if l.Bench == "" {
			return nil, fmt.Errorf("read measurement %d: it names no benchmark", len(lines)+1)
		}
		key := [2]string{l.Bench, l.Variant}
		place, again := places[key]
		if !again {
			places[key] = len(lines)
			lines = append(lines, l)
			continue
		}
		lines[place] = l
	}
}

// alone makes the line of a measurement that has no ceiling.
func alone(bench, variant, unit string, measured []float64) line {
	low, high := extremes(measured)
	return line{
		Bench: bench, Variant: variant, Unit: unit, Rounds: len(measured),
		Median: round(median(measured)), Min: round(low), Max: round(high),
	}
}

// write prints the line as JSON on a line of its own.
func (l line) write(out io.Writer) error {
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode the measurement: %w", err)
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
