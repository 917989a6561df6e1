package model

// Payment is money that a payment provider says has arrived for an order.
type Payment struct {
	ID     string // the provider's, unique across all orders
	Amount int64  // in minor units
}

// Validate returns an *InvalidError that names every field which breaks a rule, or nil.
func (p Payment) Validate() error {
	var bad Faults
	bad.Check(ValidID(p.ID), "payment_id", IDRule)
	bad.Check(p.Amount >= 0 && p.Amount <= MaxAmount, "amount", "must be 0 to 1000000000000000 in minor units")
	return bad.Err()
}

// Verdict says what a payment does to an order.
type Verdict int

// The verdicts.
const (
	// Refused comes with an error that says why.
	Refused Verdict = iota
	// Repeated: this payment has been recorded; nothing changes.
	Repeated
	// Accepted: the order becomes paid.
	Accepted
	// Returned: the money is recorded, and a refund of it; the order stays as it is.
	Returned
)

// Judge says what p does to the order no with this status and total. PaidFor is the number of the order that p's id is recorded
// for, empty if it is new.
//
// The amount must be the order's total whatever its status is, so that the answer does not depend on who won a race.
func Judge(no string, status Status, total int64, p Payment, paidFor string) (Verdict, error) {
	switch {
	case paidFor != "" && paidFor != no:
		return Refused, ErrPaymentTaken
	case p.Amount != total:
		return Refused, ErrWrongAmount
	case paidFor == no:
		return Repeated, nil
	case status.Final():
		return Returned, nil
	default:
		return Accepted, nil
	}
}
