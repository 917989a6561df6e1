package client_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api/openapi"
	"github.com/duebox/duebox/client"
)

// left are the operations that have no method, and why.
var left = map[string]string{
	"metrics":      "for Prometheus",
	"openapiPage":  "for people",
	"openapiStyle": "for the page",
	"openapiJSON":  "for tools",
	"openapiYAML":  "for tools",
	"logIn":        "for the page",
	"getSession":   "for the page",
	"logOut":       "for the page",

	"getOverview":          "for the operator's page and duebox outbox",
	"listMessages":         "for the operator's page and duebox outbox",
	"actOnMessages":        "for the operator's page and duebox outbox",
	"getStory":             "for the operator's page and duebox outbox",
	"requeueMessage":       "for the operator's page and duebox outbox",
	"cancelMessage":        "for the operator's page and duebox outbox",
	"rescheduleMessage":    "for the operator's page and duebox outbox",
	"publishMessageNow":    "for the operator's page and duebox outbox",
	"listAudit":            "for the operator's page and duebox outbox",
	"listUnrouted":         "for the operator's page and duebox outbox",
	"findOrders":           "for the operator's page and duebox outbox",
	"getOrderWithMessages": "for the operator's page and duebox outbox",
	"listRuns":             "for the operator's page and duebox outbox",
}

type document struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
		}
	}
}

func read(t *testing.T) (d document) {
	t.Helper()
	text, err := openapi.JSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func TestClient_HasAMethodForEachOperation(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for path, item := range read(t).Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var op map[string]any
			require.NoError(t, json.Unmarshal(raw, &op))
			id, _ := op["operationId"].(string)
			require.NotEmpty(t, id, path)
			seen[id] = true
			_, has := reflect.TypeFor[*client.Client]().MethodByName(strings.ToUpper(id[:1]) + id[1:])
			require.NotEqual(t, has, left[id] != "", "%s: a method, or a reason for none", id)
		}
	}
	for id := range left {
		require.True(t, seen[id], "%s is no operation", id)
	}
}

func TestTypes_HaveTheFieldsOfTheDocument(t *testing.T) {
	t.Parallel()
	schemas := read(t).Components.Schemas
	for name, typ := range map[string]reflect.Type{
		"Order": reflect.TypeFor[client.Order](), "OrderPage": reflect.TypeFor[client.OrderPage](), "Item": reflect.TypeFor[client.Item](),
		"Draft": reflect.TypeFor[client.Draft](), "Product": reflect.TypeFor[client.Product](), "Message": reflect.TypeFor[client.Message](),
		"Scope": reflect.TypeFor[client.Scope](), "Run": reflect.TypeFor[client.Run](), "Report": reflect.TypeFor[client.Report](),
		"Finding": reflect.TypeFor[client.Finding](), "Fault": reflect.TypeFor[client.FieldFault](),
	} {
		var documented, have []string
		for field := range schemas[name].Properties {
			documented = append(documented, field)
		}
		for _, field := range reflect.VisibleFields(typ) {
			if tag := field.Tag.Get("json"); tag != "" {
				have = append(have, tag)
			}
		}
		require.NotEmpty(t, documented, name)
		require.ElementsMatch(t, documented, have, name)
	}
}

func TestProblems_AreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	var documented, known []string
	for _, found := range regexp.MustCompile(`urn:duebox:problem:([a-z]+(?:-[a-z]+)*)`).FindAllStringSubmatch(string(openapi.YAML), -1) {
		documented = append(documented, found[1])
	}
	slices.Sort(documented)
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "ProblemType" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value) //nolint:forcetypeassert // the test fails then, too
			require.NoError(t, err)
			known = append(known, text)
		}
		return true
	})
	require.ElementsMatch(t, slices.Compact(documented), known)
}
