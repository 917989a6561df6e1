package ordering

// Outcome is something that has become of an order.
type Outcome string

// The outcomes.
const (
	Placed          Outcome = "placed"
	Paid            Outcome = "paid"
	ClosedByTimeout Outcome = "closed_by_timeout"
	ClosedByUser    Outcome = "closed_by_user"
	Extended        Outcome = "extended" // its due time was moved, earlier or later
	Reminded        Outcome = "reminded"
	Refunded        Outcome = "refunded" // money came that it could not take
)

// Outcomes returns all of them.
func Outcomes() []Outcome {
	return []Outcome{Placed, Paid, ClosedByTimeout, ClosedByUser, Extended, Reminded, Refunded}
}

// happened tells of n orders, after the commit. What was there already, as when a call is repeated, is not told again.
func (s *Service) happened(what Outcome, n int64) {
	if s.cfg.Happened != nil && n > 0 {
		s.cfg.Happened(what, n)
	}
}
