package api

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// Routes are what s serves.
func (s *Server) Routes() gin.RoutesInfo {
	h := s.http.Handler
	if w, ok := h.(interface{ Unwrap() http.Handler }); ok {
		h = w.Unwrap()
	}
	if e, ok := h.(*gin.Engine); ok {
		return e.Routes()
	}
	return nil
}

// Wrap puts another handler in front of the server's, also for Serve and Run.
func (s *Server) Wrap(around func(http.Handler) http.Handler) {
	s.http.Handler = around(s.http.Handler)
}

// Session is a cookie that s has set.
func (s *Server) Session(name string, until time.Time) string { return s.sessions.begin(name, until) }
