package api

import "github.com/gin-gonic/gin"

// Routes are the paths that s serves, one for each method.
func (s *Server) Routes() (all []string) {
	if e, ok := s.http.Handler.(*gin.Engine); ok {
		for _, r := range e.Routes() {
			all = append(all, r.Path)
		}
	}
	return all
}
