package signals_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID          int
		Type, Title string
		Targets     []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      string
		}
	}
}

// TestDashboards_NameOnlyWhatIsExported holds each panel and each variable against the registry, and all panels together against it the
// other way round: what duebox exports is to be seen somewhere.
func TestDashboards_NameOnlyWhatIsExported(t *testing.T) {
	t.Parallel()
	r := exported(t)
	files, err := filepath.Glob(filepath.Join(grafana, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	values := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	seen := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		seen += string(text)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), file)
		ids := map[int]bool{}
		for _, p := range d.Panels {
			require.False(t, ids[p.ID], "%s: two panels with id %d", file, p.ID)
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Targets, "%s: %s", file, p.Title)
			for _, target := range p.Targets {
				require.Empty(t, r.faults(target.Expr), "%s: %s", file, p.Title)
				for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					require.Contains(t, labelsOf(t, r, target.Expr), label[1], "%s: the legend of %s", file, p.Title)
				}
			}
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			parts := values.FindStringSubmatch(v.Query)
			require.NotNil(t, parts, "%s: variable %s", file, v.Name)
			require.Contains(t, r, parts[1], file)
			require.Contains(t, r[parts[1]], parts[2], file)
		}
	}
	for metric := range r {
		if strings.HasPrefix(metric, "duebox_") && !strings.HasSuffix(metric, "_sum") && !strings.HasSuffix(metric, "_count") {
			require.Contains(t, seen, metric, "no panel shows it")
		}
	}
}
