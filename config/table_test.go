package config_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the README's table anew")

// TestTable_StandsInTheREADME keeps the README's table equal to the tags and comments of Config.
func TestTable_StandsInTheREADME(t *testing.T) {
	t.Parallel()
	const readme, begin, end = "../README.md", "<!-- config:begin -->\n", "<!-- config:end -->"
	content, err := os.ReadFile(readme)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(content), begin)
	require.True(t, found, "no %s", begin)
	table, after, found := strings.Cut(rest, end)
	require.True(t, found, "no %s", end)
	if *update {
		require.NoError(t, os.WriteFile(readme, []byte(before+begin+configTable(t)+end+after), 0o644))
		return
	}
	require.Equal(t, configTable(t), table, "run: go test ./config -update")
}

// configTable is one row for each field of Config, in its order, as a table in Markdown.
func configTable(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var fields []*ast.Field
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if ok && spec.Name.Name == "Config" {
			config, ok := spec.Type.(*ast.StructType)
			require.True(t, ok)
			fields = config.Fields.List
		}
		return true
	})
	require.NotEmpty(t, fields)

	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, field := range fields {
		text, err := strconv.Unquote(field.Tag.Value)
		require.NoError(t, err)
		tag := reflect.StructTag(text)
		meaning := strings.Join(strings.Fields(field.Doc.Text()), " ")
		require.NotEmpty(t, meaning, tag)
		variable, standard := "`"+tag.Get("env")+"`", ""
		if kind, ok := field.Type.(*ast.Ident); ok && kind.Name == "Secret" {
			variable += ", `" + tag.Get("env") + "_FILE`"
		}
		if value := tag.Get("envDefault"); value != "" {
			standard = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", variable, standard, meaning)
	}
	return b.String()
}
