package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/api/ui"
)

// servePage adds the files of the operator's page, which hold no data and want no token.
func (s *Server) servePage(e *gin.Engine, page *gin.RouterGroup) {
	// Relative addresses in the page need the slash.
	e.GET("/ui", func(c *gin.Context) { c.Redirect(http.StatusPermanentRedirect, "ui/") })
	page.GET("/", s.pageFile(func(*gin.Context) string { return "index.html" }))
	page.GET("/:file", s.pageFile(func(c *gin.Context) string { return c.Param("file") }))
	page.GET("/views/:file", s.pageFile(func(c *gin.Context) string { return "views/" + c.Param("file") }))
}

// pageFile answers with a file, whose tag changes with its content: a browser asks each time and is seldom sent anything, and after an
// upgrade it has no file of the version before.
func (s *Server) pageFile(name func(c *gin.Context) string) gin.HandlerFunc {
	kinds := map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	files := ui.Files()
	return func(c *gin.Context) {
		data, err := fs.ReadFile(files, name(c))
		if err != nil {
			s.fail(c, errNoRoute)
			return
		}
		sum := sha256.Sum256(data)
		c.Header("Cache-Control", "no-cache")
		c.Header("Content-Type", kinds[path.Ext(name(c))])
		c.Header("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
		http.ServeContent(c.Writer, c.Request, "", time.Time{}, bytes.NewReader(data))
	}
}
