package api

import (
	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
)

func (s *Server) putProduct(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	sku, err := pathID(c, "sku")
	if err != nil {
		return reply{}, err
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	want := model.Stocking{SKU: sku, Name: in.text("name"), Stock: in.integer("stock")}
	if err := in.end(); err != nil {
		return reply{}, err
	}
	p, err := s.orders.SetStock(c.Request.Context(), want)
	return ok(productBody(p)), err
}

func (s *Server) getProduct(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	sku, err := pathID(c, "sku")
	if err != nil {
		return reply{}, err
	}
	p, err := s.orders.Product(c.Request.Context(), sku)
	return ok(productBody(p)), err
}
