// Package openapi holds the OpenAPI 3.1 document of the API, and makes the page that people read of it.
//
// The document is written by hand and embedded. That it says what the API does is shown by the tests of package api, which hold every
// answer against it. The page needs no network, no script, and no style but Style.
package openapi

import (
	_ "embed"
	"fmt"

	"github.com/goccy/go-yaml"
)

// YAML is the document as it is written. Nobody may change it.
//
//go:embed openapi.yaml
var YAML []byte

// Style is the style sheet of Page, which expects it at openapi.css. Nobody may change it.
//
//go:embed page.css
var Style []byte

// JSON is the document as JSON, its fields in the order of YAML.
func JSON() ([]byte, error) {
	data, err := yaml.YAMLToJSON(YAML)
	if err != nil {
		return nil, fmt.Errorf("openapi: the document is not YAML: %w", err)
	}
	return data, nil
}
