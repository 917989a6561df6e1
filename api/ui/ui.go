// Package ui holds the operator's page: files that a browser is given as they are. There is no build step, and nothing in them
// is fetched from anywhere but the server that they came from.
//
// The page holds no data. It asks /v1/admin for all of it, as any client does, and learns from /ui/session who is asking.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed static
var static embed.FS

// Files are the page's files, index.html among them at the root.
func Files() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the name is valid
	}
	return files
}
