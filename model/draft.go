package model

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// Limits of an order. Together they keep every total below 2^53, so that a client that reads JSON numbers as doubles reads
// it exactly, and far from an overflow.
const (
	MaxItems    = 100
	MaxQuantity = 10_000
	MaxPrice    = 1_000_000_000
	MaxAmount   = MaxItems * MaxQuantity * MaxPrice
)

// Draft is an order that somebody wants to place.
type Draft struct {
	Kind  Kind
	User  string
	Items []Item
}

// Validate returns an *InvalidError that names every field which breaks a rule, or nil. A SKU that is listed twice is refused
// and not added up: it is more often a mistake of the caller than a wish.
func (d Draft) Validate() error {
	var bad Faults
	bad.Check(d.Kind.Valid(), "kind", "must be normal, flash or presale")
	bad.Check(ValidID(d.User), "user", IDRule)
	bad.Check(len(d.Items) >= 1 && len(d.Items) <= MaxItems, "items", "must list 1 to 100 items")
	seen := make(map[string]bool, len(d.Items))
	for i, it := range d.Items[:min(len(d.Items), MaxItems)] {
		at := fmt.Sprintf("items[%d].", i)
		bad.Check(ValidID(it.SKU), at+"sku", IDRule)
		bad.Check(!seen[it.SKU], at+"sku", "is listed already")
		bad.Check(it.Quantity >= 1 && it.Quantity <= MaxQuantity, at+"quantity", "must be 1 to 10000")
		bad.Check(it.Price >= 0 && it.Price <= MaxPrice, at+"price", "must be 0 to 1000000000 in minor units")
		seen[it.SKU] = true
	}
	return bad.Err()
}

// Total is what a valid draft costs, in minor units, at most MaxAmount.
func (d Draft) Total() int64 {
	var total int64
	for _, it := range d.Items {
		total += it.Quantity * it.Price
	}
	return total
}

// Fingerprint tells drafts apart: it is equal for equal drafts, however their JSON was written.
func (d Draft) Fingerprint() [sha256.Size]byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return sha256.Sum256(b)
}
