package signals_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	read(t, "alerts.yml", &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prometheus, name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

// labelsOf is what a sample of the expression may have.
func labelsOf(t *testing.T, r registry, text string) map[string]bool {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(grafanaVariables().Replace(text))
	require.NoError(t, err)
	found := map[string]bool{}
	grouped := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			grouped = true
			for _, label := range n.Grouping {
				found[label] = true
			}
		case *parser.VectorSelector:
			for label := range r[n.Name] {
				if !grouped {
					found[label] = true
				}
			}
		}
		return nil
	})
	return found
}

func TestAlerts_NameOnlyWhatIsExported(t *testing.T) {
	t.Parallel()
	r := exported(t)
	used := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, alert := range rules(t) {
		require.Empty(t, r.faults(alert.Expr), alert.Alert)
		require.Contains(t, []string{"page", "ticket"}, alert.Labels["severity"], alert.Alert)
		for _, text := range alert.Annotations {
			for _, label := range used.FindAllStringSubmatch(text, -1) {
				require.Contains(t, labelsOf(t, r, alert.Expr), label[1], alert.Alert)
			}
		}
	}
}

// TestAlerts_AreAnswered: each alert has a section of its name in docs/operations.md, which its runbook_url opens, and no section is left of
// an alert that is gone.
func TestAlerts_AreAnswered(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	_, answers, found := strings.Cut(string(text), "\n## Alerts\n")
	require.True(t, found)
	answers, _, _ = strings.Cut(answers, "\n## ")
	var answered, all []string
	for section := range strings.SplitSeq(answers, "\n### ") {
		name, answer, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(name, "Duebox") {
			answered = append(answered, name)
			require.Greater(t, len(strings.TrimSpace(answer)), 60, name)
		}
	}
	for _, alert := range rules(t) {
		all = append(all, alert.Alert)
		require.Equal(t, "https://github.com/duebox/duebox/blob/main/docs/operations.md#"+strings.ToLower(alert.Alert), alert.Annotations["runbook_url"])
		require.NotEmpty(t, alert.Annotations["summary"], alert.Alert)
	}
	require.Equal(t, all, answered, "in the order of the rules")
}

// TestAlerts_FireWhenTheyShould runs promtool on the rules' unit tests, of which each alert has one.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Name          string
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"` //nolint:tagliatelle // promtool's name
			} `yaml:"alert_rule_test"` //nolint:tagliatelle // promtool's name
		}
	}
	read(t, "alerts_test.yml", &file)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.AlertRuleTest {
			if len(c.ExpAlerts) > 0 {
				fires[c.Alertname] = true
			} else {
				rests[c.Alertname] = true
			}
		}
	}
	for _, alert := range rules(t) {
		require.True(t, fires[alert.Alert] && rests[alert.Alert], "%s is not tested firing and at rest", alert.Alert)
	}
	output, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", filepath.Join(prometheus, "alerts_test.yml")).CombinedOutput()
	require.NoError(t, err, "promtool is in Debian's package prometheus (scripts/setup.sh): %s", output)
}

// TestPrometheus_TakesItsSettings has promtool look at the scrape settings, which load the alerts.
func TestPrometheus_TakesItsSettings(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), "promtool", "check", "config", "--syntax-only", filepath.Join(prometheus, "prometheus.yml")).CombinedOutput()
	require.NoError(t, err, "%s", output)
	var settings struct {
		RuleFiles []string `yaml:"rule_files"` //nolint:tagliatelle // Prometheus' name
	}
	read(t, "prometheus.yml", &settings)
	require.Equal(t, []string{"alerts.yml"}, settings.RuleFiles)
}
