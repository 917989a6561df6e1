package chaos

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Report is what came of a run.
type Report struct {
	Seed     uint64
	Faults   []string // as they really were, in the order of time
	Lateness Latenesses
	Answers  Counts
	Found    Found
	// Duplicates are deliveries that the guard has dropped because their message had taken effect, as the workers tell it; what
	// a worker had not yet said when it was killed is missing.
	Duplicates int
	Violations []Violation
}

// Broke tells whether a rule was broken.
func (r Report) Broke(rule Rule) bool {
	for _, v := range r.Violations {
		if v.Rule == rule {
			return true
		}
	}
	return false
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(table, format+"\n", args...) }
	line("\nseed %d", r.Seed)
	line("\nfaults")
	for _, f := range r.Faults {
		line("  %s", f)
	}
	line("\nlateness (after the due time)\tmessages\tp50\tp99\tmax")
	for _, row := range []struct {
		name string
		Lateness
	}{
		{"without faults", r.Lateness.Quiet},
		{"with faults", r.Lateness.Faulty},
		{"with faults when handed over", r.Lateness.Handed},
		{"lost without a sign, perhaps", r.Lateness.Unheard},
	} {
		line("  %s\t%d\t%s\t%s\t%s", row.name, row.N, milli(row.P50), milli(row.P99), milli(row.Max))
	}
	a, f := r.Answers, r.Found
	line("\norders\tplaced %d\tunknown %d\tpaid %d\tclosed %d\tpending %d", a.Placed, a.Unknown, f.Paid, f.Closed, f.Pending)
	line("answers\tpayments %d\tcancels %d\treschedules %d of %d\trefunds %d", a.Paid, a.Canceled, a.Rescheduled, a.Moves, f.Refunds)
	line("messages\tdone %d\tcanceled %d\tdead %d\tlive %d", f.Done, f.Canceled, f.Dead, f.Live)
	line("besides\trepublished %d\trepaired %d\tduplicates %d\tbroker epoch %d", f.Republished, f.Repaired, r.Duplicates, f.Epoch)
	if f.Kept != "" {
		line("kept for an operator\t%s", f.Kept)
	}
	if len(r.Violations) == 0 {
		line("\nverdict: every promise was kept")
	} else {
		line("\nverdict: %d violations", len(r.Violations))
	}
	for _, v := range r.Violations {
		line("  %s", v)
	}
	return table.Flush()
}

func milli(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}
