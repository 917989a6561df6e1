package demo

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"
)

// deliveries is what the worker says about each delivery it has finished with, in its log of level debug.
type deliveries struct {
	mu         sync.Mutex
	lateness   []time.Duration // of effects: database time just after the commit minus due time
	duplicates int
	last       time.Time // when the last one was heard of
}

// handled is the message of the worker's log lines that count here.
const handled = "delivery handled"

func (d *deliveries) read(line []byte) {
	if !bytes.Contains(line, []byte(handled)) {
		return
	}
	var said struct {
		Message  string  `json:"msg"`
		Outcome  string  `json:"outcome"`
		Lateness float64 `json:"lateness_seconds"`
	}
	if json.Unmarshal(line, &said) != nil || said.Message != handled {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
	switch said.Outcome {
	case "done":
		d.lateness = append(d.lateness, time.Duration(said.Lateness*float64(time.Second)))
	case "duplicate":
		d.duplicates++
	}
}

// quiet tells for how long nothing was delivered.
func (d *deliveries) quiet() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.last)
}

func (d *deliveries) dropped() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.duplicates
}

// Lateness is how long after the due time effects were committed, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (d *deliveries) late() Lateness {
	d.mu.Lock()
	defer d.mu.Unlock()
	sorted := slices.Sorted(slices.Values(d.lateness))
	return Lateness{P50: quantile(sorted, 0.5), P99: quantile(sorted, 0.99), Max: quantile(sorted, 1)}
}

// quantile is the smallest value that at least the share q of all values does not exceed, in milliseconds; 0 if there are none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := max(1, int(math.Ceil(q*float64(len(sorted)))))
	return math.Round(float64(sorted[rank-1])/float64(time.Microsecond)) / 1000
}
