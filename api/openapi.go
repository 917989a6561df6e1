package api

import (
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/api/openapi"
)

// pagePolicy lets the document's page have its style and nothing else.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// serveDocument adds the OpenAPI document and its page, which hold no data and want no token.
func (s *Server) serveDocument(e *gin.Engine) {
	fixed := func(data []byte) func() ([]byte, error) { return func() ([]byte, error) { return data, nil } }
	e.GET("/openapi", s.file("text/html; charset=utf-8", sync.OnceValues(openapi.Page)))
	e.GET("/openapi.css", s.file("text/css; charset=utf-8", fixed(openapi.Style)))
	e.GET("/openapi.json", s.file("application/json", sync.OnceValues(openapi.JSON)))
	e.GET("/openapi.yaml", s.file("application/yaml", fixed(openapi.YAML)))
}

// file answers with what content returns, which must be the same each time.
func (s *Server) file(contentType string, content func() ([]byte, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		data, err := content()
		if err != nil {
			s.fail(c, err)
			return
		}
		c.Header("Cache-Control", "no-cache")
		c.Header("Content-Security-Policy", pagePolicy)
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Content-Type", contentType)
		_, _ = c.Writer.Write(data) // a client that has left is nobody to tell
	}
}
