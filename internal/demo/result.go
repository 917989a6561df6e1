package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what came of a run. Its JSON names are a contract.
type Result struct {
	Orders   int `json:"orders"`
	Paid     int `json:"paid"`
	Closed   int `json:"closed"`
	Pending  int `json:"pending"`
	Refunded int `json:"refunded"` // refund records: payments that came after closing
	Lost     int `json:"lost"`     // orders that were pending past their due time at the end
	Early    int `json:"early"`    // orders with an effect before that was due
	// DuplicateDeliveries counts deliveries of messages whose effect was committed already.
	DuplicateDeliveries int `json:"duplicate_deliveries"`
	// DuplicateEffects counts effects beyond each message's first.
	DuplicateEffects int `json:"duplicate_effects"`
	// Republished counts publications beyond each message's first that the relay has settled.
	Republished    int      `json:"republished"`
	StockConserved bool     `json:"stock_conserved"`
	LatenessMS     Lateness `json:"lateness_ms"`
	Strategy       string   `json:"strategy"`
	Exchange       string   `json:"exchange"` // plugin or stand-in
	// Seconds is the time from the first order to the last effect; starting the services is not in it.
	Seconds float64 `json:"seconds"`

	problems []string
}

func newResult(f findings) Result {
	return Result{
		Orders: f.orders(), Paid: f.paid, Closed: f.closed, Pending: f.pending, Refunded: f.refunded,
		Lost: f.lost, Early: f.early, DuplicateEffects: f.duplicateEffects, Republished: f.republished,
		StockConserved: f.stockConserved, problems: f.problems,
	}
}

// wrong lists in words what must not be.
func (r Result) wrong() []string {
	var out []string
	for _, count := range []struct {
		n    int
		what string
	}{
		{r.Lost, "orders were lost: pending past their due time"},
		{r.Pending - r.Lost, "orders are pending, not yet due"},
		{r.Early, "orders were closed, or reminded of, too soon"},
		{r.DuplicateEffects, "effects happened twice"},
	} {
		if count.n != 0 {
			out = append(out, fmt.Sprintf("%d %s", count.n, count.what))
		}
	}
	if !r.StockConserved {
		out = append(out, "units were lost or made: the stock is not what it was")
	}
	return slices.Concat(out, r.problems)
}

// verdict is nil, or ErrFound with what is wrong.
func (r Result) verdict() error {
	if wrong := r.wrong(); len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ErrFound, strings.Join(wrong, "; "))
	}
	return nil
}

func (r Result) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	conserved := "no"
	if r.StockConserved {
		conserved = "yes"
	}
	for _, row := range []struct {
		name  string
		value any
		note  string
	}{
		{"orders", r.Orders, ""},
		{"  paid", r.Paid, "in time"},
		{"  closed", r.Closed, "by themselves"},
		{"  pending", r.Pending, "must be 0"},
		{"refunded", r.Refunded, "payments after closing: late buyers pay at twice the limit"},
		{"lost", r.Lost, "must be 0"},
		{"early", r.Early, "must be 0"},
		{"duplicate deliveries", r.DuplicateDeliveries, "allowed"},
		{"duplicate effects", r.DuplicateEffects, "must be 0"},
		{"republished", r.Republished, "allowed"},
		{"stock conserved", conserved, "must be yes"},
		{"lateness p50, p99, max", fmt.Sprintf("%.1f, %.1f, %.1f ms", r.LatenessMS.P50, r.LatenessMS.P99, r.LatenessMS.Max), "after the due time"},
		{"strategy", r.Strategy, "x-delayed-message by: " + r.Exchange},
		{"took", fmt.Sprintf("%.1f s", r.Seconds), ""},
	} {
		if _, err := fmt.Fprintf(table, "%s\t%v\t%s\n", row.name, row.value, row.note); err != nil {
			return err
		}
	}
	return table.Flush()
}

func (r Result) printJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
