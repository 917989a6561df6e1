package client

import (
	"context"
	"net/http"
)

// Product is a product's stock as of one reading.
type Product struct {
	SKU       string `json:"sku"`
	Name      string `json:"name"`
	Available int64  `json:"available"`
	Reserved  int64  `json:"reserved"` // in pending orders
	Sold      int64  `json:"sold"`     // in paid orders
}

// PutProduct names a product and sets the units that shall be available from now on.
func (c *Client) PutProduct(ctx context.Context, sku, name string, stock int64) (p Product, err error) {
	body := struct {
		Name  string `json:"name"`
		Stock int64  `json:"stock"`
	}{name, stock}
	_, err = c.do(ctx, call{method: http.MethodPut, path: path("v1", "products", sku), body: body, into: &p})
	return p, err
}

// GetProduct reads a product.
func (c *Client) GetProduct(ctx context.Context, sku string) (p Product, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: path("v1", "products", sku), into: &p})
	return p, err
}
