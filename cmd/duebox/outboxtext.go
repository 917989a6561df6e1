package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/duebox/duebox/outbox"
)

// shownTime is a time as the tables show it.
func shownTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// shortened cuts a text to about n characters of one line.
func shortened(s string, n int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n]) + "..."
}

// printMessages prints a list, as of now by the database's clock.
func printMessages(w io.Writer, messages []outbox.Record, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ID\tTOPIC\tKEY\tSTATE\tDUE\tATTEMPTS\tREPAIRS\tLATE\tLAST ERROR")
	for _, r := range messages {
		late := "-"
		if d, known := r.Lateness(); known {
			late = d.Round(time.Millisecond).String()
		} else if waits, is := r.LateBy(now); is && waits > 5*time.Second {
			late = waits.Round(time.Second).String() + " so far"
		}
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n",
			r.ID, r.Topic, shortened(r.Key, 40), r.State, shownTime(r.DueAt), r.Attempts, r.Repairs, late, shortened(r.LastError, 60))
	}
	return t.Flush()
}

func printStory(w io.Writer, s outbox.Story) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { _, _ = fmt.Fprintf(t, "%s\t%v\n", name, value) }
	line("id", s.ID)
	line("topic", s.Topic)
	line("key", shortened(s.Key, 200))
	line("state", s.State)
	line("generation", s.Generation)
	line("due", shownTime(s.DueAt))
	line("attempts, repairs, publishes", fmt.Sprintf("%d, %d, %d", s.Attempts, s.Repairs, s.Publishes))
	if s.LastError != "" {
		line("last error", shortened(s.LastError, 1000))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		line("header "+name, shortened(s.Headers[name], 200))
	}
	line("payload", fmt.Sprintf("%d bytes of %s", s.PayloadBytes, s.ContentType))
	if utf8.Valid(s.Payload) && len(s.Payload) > 0 {
		line("", shortened(string(s.Payload), 500))
	}
	_, _ = fmt.Fprintln(t)
	for _, e := range s.Events {
		late := ""
		if e.Lateness != nil {
			late = fmt.Sprintf("%+v", e.Lateness.Round(time.Millisecond))
		}
		detail := shortened(e.Detail, 300)
		if e.Actor.Name != "" {
			detail = strings.TrimSuffix(fmt.Sprintf("by %s (%s): %s", e.Actor.Name, e.Actor.Via, detail), ": ")
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", shownTime(e.At), e.What, late, detail)
	}
	return t.Flush()
}

func printOverview(w io.Writer, v outbox.Overview) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "%s\n\n", v.Verdict.Text)
	for _, state := range []string{"scheduled", "published", "done", "canceled", "dead", "unrouted"} {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", state, v.Counts[state])
	}
	var hour outbox.Count
	for _, m := range v.DueNextHour {
		hour.N += m.N
		hour.More = hour.More || m.More
	}
	_, _ = fmt.Fprintf(t, "due within the hour\t%s\n", hour)
	if l := v.Lateness; l.Of > 0 {
		_, _ = fmt.Fprintf(t, "lateness\tp50 %v, p99 %v, at most %v, of the last %d\n", l.P50, l.P99, l.Max, l.Of)
	}
	for _, p := range v.Workers {
		how := "says nothing"
		switch {
		case p.Alive() && p.Connected && p.Blocked:
			how = "blocked: " + p.Reason
		case p.Alive() && p.Connected:
			how = fmt.Sprintf("connected, strategy %s, epoch %d", p.Strategy, p.Epoch)
		case p.Alive():
			how = "not connected: " + p.Reason
		}
		_, _ = fmt.Fprintf(t, "worker %s\t%s, seen %s\n", p.Owner, shortened(how, 120), shownTime(p.SeenAt))
	}
	if run := v.LastPass; run != nil {
		_, _ = fmt.Fprintf(t, "last pass\t%s, found %d\n", shownTime(run.FinishedAt), run.Report.Found())
	}
	if run := v.LastAudit; run != nil {
		_, _ = fmt.Fprintf(t, "last audit\t%s, found %d\n", shownTime(run.FinishedAt), run.Report.Found())
	}
	return t.Flush()
}
