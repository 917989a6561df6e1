package model

// MaxID is the most bytes of an id.
const MaxID = 64

// IDRule says in words what ValidID accepts.
const IDRule = "must be 1 to 64 characters of [A-Za-z0-9._-]"

// ValidID reports whether s can be an order number, SKU, user or payment id.
func ValidID(s string) bool {
	if s == "" || len(s) > MaxID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return false
		}
	}
	return true
}

// MaxKey is the most bytes of an idempotency key.
const MaxKey = 128

// KeyRule says in words what ValidKey accepts.
const KeyRule = "must be 1 to 128 characters of printable ASCII"

// ValidKey reports whether s can be an idempotency key.
func ValidKey(s string) bool {
	if s == "" || len(s) > MaxKey {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
