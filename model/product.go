package model

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a product.
const (
	MaxStock = 1_000_000_000
	MaxName  = 200 // characters
)

// Product is a product's stock as of one reading. Available + Reserved + Sold is the sum of all its adjustments.
type Product struct {
	SKU       string
	Name      string
	Available int64
	Reserved  int64 // in pending orders
	Sold      int64 // in paid orders
}

// Stocking sets a product's name and the units that shall be available. What is reserved and sold stays.
type Stocking struct {
	SKU   string
	Name  string
	Stock int64
}

// Validate returns an *InvalidError that names every field which breaks a rule, or nil. A name is 1 to MaxName characters of
// any script, without control characters or line breaks, and without a blank at either end.
func (s Stocking) Validate() error {
	var bad Faults
	bad.Check(ValidID(s.SKU), "sku", IDRule)
	bad.Check(validName(s.Name), "name", "must be 1 to 200 characters, none of them a control character, no blank at either end")
	bad.Check(s.Stock >= 0 && s.Stock <= MaxStock, "stock", "must be 0 to 1000000000")
	return bad.Err()
}

func validName(s string) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > MaxName || strings.TrimSpace(s) != s {
		return false
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return true
}
