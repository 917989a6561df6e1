package api

import (
	"net/url"
	"strconv"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/duebox/duebox/model"
)

func (s *Server) routes() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.ContextWithFallback = false
	// Path values are unescaped once, by pathID: gin would take a plus for a blank.
	e.UseEscapedPath = true
	e.UnescapePathValues = false
	e.Use(s.traced, s.observe, s.deadline, s.recovered, s.certified)
	e.NoRoute(s.do(func(*gin.Context) (reply, error) { return reply{}, errNoRoute }))
	e.NoMethod(s.do(func(*gin.Context) (reply, error) { return reply{}, errNoMethod }))

	e.GET("/healthz", s.do(s.health))
	e.GET("/readyz", s.do(s.readiness))
	e.GET("/metrics", s.access(s.scraper),
		gin.WrapH(promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{Registry: s.cfg.Registry})))

	s.serveDocument(e)

	orders := e.Group("/v1/orders", s.access(s.user))
	orders.POST("", s.do(s.placeOrder))
	orders.GET("", s.do(s.listOrders))
	orders.GET("/:no", s.do(s.getOrder))
	orders.POST("/:no/cancel", s.do(s.cancelOrder))

	v1 := e.Group("/v1", s.access(s.service))
	// Users neither say that they have paid nor how long they may take.
	v1.POST("/orders/:no/pay", s.do(s.payOrder))
	v1.PATCH("/orders/:no/due", s.do(s.extendOrder))
	v1.PUT("/products/:sku", s.do(s.putProduct))
	v1.GET("/products/:sku", s.do(s.getProduct))

	v1.PUT("/messages/:topic/:key", s.do(s.putMessage))
	v1.GET("/messages/:topic/:key", s.do(s.getMessage))
	v1.PATCH("/messages/:topic/:key", s.do(s.moveMessage))
	v1.DELETE("/messages/:topic/:key", s.do(s.withdrawMessage))
	v1.GET("/deliveries/:id", s.do(s.askDelivery))
	v1.POST("/deliveries/:id/done", s.do(s.finishDelivery))

	s.adminRoutes(e.Group("/v1/admin", s.access(s.operator)))

	// What is below /ui needs no token, but what it shows comes from /v1/admin.
	ui := e.Group("/ui", pageHeaders)
	ui.POST("/session", s.do(s.logIn))
	ui.GET("/session", s.do(s.getSession))
	ui.DELETE("/session", s.do(s.logOut))
	s.servePage(e, ui)
	return e
}

// do runs an action and writes what it returns.
func (s *Server) do(action func(c *gin.Context) (reply, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		r, err := action(c)
		if err != nil {
			s.fail(c, err)
			return
		}
		r.write(c)
	}
}

// pathID is a path value that must be an id.
func pathID(c *gin.Context, name string) (string, error) {
	id, err := url.PathUnescape(c.Param(name))
	if err != nil || !model.ValidID(id) {
		return "", model.Invalid(name, model.IDRule)
	}
	return id, nil
}

// pathNumber is the id in a path, which must be a whole number above zero, as our answers write it.
func pathNumber(c *gin.Context, rule string) (int64, error) {
	text, err := pathID(c, "id")
	if err != nil {
		return 0, err
	}
	return number("id", text, rule)
}

// number is a whole number above zero, written without anything that it does not need.
func number(name, text, rule string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != text {
		return 0, model.Invalid(name, rule)
	}
	return n, nil
}

// query reads the query string. Parameters other than the allowed, repeated ones, and a string that does not parse are refused; an
// empty value counts as absent.
func query(c *gin.Context, allowed ...string) (map[string]string, error) {
	values, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return nil, model.Invalid("query", "is not a valid query string")
	}
	var bad model.Faults
	found := make(map[string]string, len(allowed))
	for _, name := range allowed {
		bad.Check(len(values[name]) <= 1, name, "must be given once")
		found[name] = values.Get(name)
		delete(values, name)
	}
	for name := range values {
		bad.Add(shown(name), "is not a parameter of this request")
	}
	return found, bad.Err()
}
