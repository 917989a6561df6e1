package signals_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const (
	golden     = "../../cmd/duebox/testdata/metrics.golden"
	operations = "../../docs/operations.md"
	prometheus = "../../deploy/prometheus"
	grafana    = "../../deploy/grafana"
)

// registry is what api and worker export: metric -> label -> its values, none where they are not told.
type registry map[string]map[string][]string

func exported(t *testing.T) registry {
	t.Helper()
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	all := registry{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // process, name, type, labels
		names := []string{fields[1]}
		kind := fields[2]
		if kind == "histogram" || kind == "summary" {
			names = []string{fields[1] + "_sum", fields[1] + "_count"}
		}
		if kind == "histogram" {
			names = append(names, fields[1]+"_bucket")
		}
		for _, name := range names {
			if all[name] == nil {
				all[name] = map[string][]string{"instance": nil, "job": nil} // of the scrape
			}
			if strings.HasSuffix(name, "_bucket") {
				all[name]["le"] = nil
			}
			for _, label := range fields[3:] {
				label, values, _ := strings.Cut(label, "=")
				all[name][label] = nil
				if values != "" {
					all[name][label] = strings.Split(values, "|")
				}
			}
		}
	}
	require.Contains(t, all, "duebox_lateness_seconds_bucket")
	return all
}

// faults says what an expression names that nobody exports.
func (r registry) faults(text string) (found []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(grafanaVariables().Replace(text))
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			found = append(found, r.selectorFaults(n)...)
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !r.hasLabel(n.Expr, label) {
					found = append(found, fmt.Sprintf("no metric in %q has the label %s", n.Expr, label))
				}
			}
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && len(n.VectorMatching.MatchingLabels) > 0 {
				found = append(found, "matching by labels is not checked: "+n.String())
			}
		}
		return nil
	})
	return found
}

// grafanaVariables are what Grafana puts in by itself or by a dashboard's templating.
func grafanaVariables() *strings.Replacer {
	return strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
}

func (r registry) selectorFaults(s *parser.VectorSelector) (found []string) {
	has, ok := r[s.Name]
	if !ok {
		return []string{"nobody exports " + s.Name}
	}
	for _, m := range s.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			continue
		}
		values, ok := has[m.Name]
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s has no label %s", s.Name, m.Name))
		case values != nil && !slices.ContainsFunc(values, m.Matches):
			found = append(found, fmt.Sprintf("%s has no %s that is %s", s.Name, m.Name, m))
		case values != nil && m.Type == labels.MatchRegexp:
			for alternative := range strings.SplitSeq(m.Value, "|") {
				if !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+alternative+")$").MatchString) {
					found = append(found, fmt.Sprintf("%s has no %s that is %q", s.Name, m.Name, alternative))
				}
			}
		}
	}
	return found
}

func (r registry) hasLabel(expr parser.Expr, label string) bool {
	has := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			_, found := r[s.Name][label]
			has = has || found
		}
		return nil
	})
	return has
}

func TestRegistry_FindsWhatNobodyExports(t *testing.T) {
	t.Parallel()
	r := exported(t)
	for expr, want := range map[string]string{
		`sum(rate(duebox_deliveries_total{outcome="done"}[5m]))`:              "",
		`sum by (topic, instance) (duebox_messages{state=~"dead|published"})`: "",
		`histogram_quantile(0.9, rate(duebox_lateness_seconds_bucket[5m]))`:   "",
		`duebox_message`:                                             "nobody exports duebox_message",
		`duebox_lateness_seconds`:                                    "nobody exports duebox_lateness_seconds",
		`rate(duebox_repairs_total{why="overdue"}[5m])`:              "duebox_repairs_total has no label why",
		`rate(duebox_repairs_total{reason="overdu"}[5m])`:            `duebox_repairs_total has no reason that is reason="overdu"`,
		`rate(duebox_dead_total{reason=~"attempts|old"}[5m])`:        `duebox_dead_total has no reason that is "old"`,
		`sum by (queue) (duebox_messages)`:                           `no metric in "duebox_messages" has the label queue`,
		`duebox_messages + on (topic) group_left duebox_queue_ready`: "matching by labels is not checked: duebox_messages + on (topic) group_left () duebox_queue_ready",
	} {
		found := strings.Join(r.faults(expr), "; ")
		require.Equal(t, want, found, expr)
	}
	require.NotEmpty(t, r.faults("sum("))
}
