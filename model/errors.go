package model

import (
	"errors"
	"strings"
)

// What a request can be answered with besides success. The text of each is fit for the caller's eyes.
var (
	// ErrNoOrder says that no order has this number.
	ErrNoOrder = errors.New("there is no such order")
	// ErrNoProduct says that no product has this SKU.
	ErrNoProduct = errors.New("there is no such product")
	// ErrPaid says that a paid order can neither be canceled nor get another due time.
	ErrPaid = errors.New("the order is paid and stays as it is")
	// ErrClosed says that a closed order cannot get another due time.
	ErrClosed = errors.New("the order is closed and stays as it is")
	// ErrWrongAmount says that a payment is not of the order's exact total.
	ErrWrongAmount = errors.New("the amount is not the order's total")
	// ErrPaymentTaken says that a payment id has been used for another order.
	ErrPaymentTaken = errors.New("the payment id belongs to another order")
	// ErrKeyReused says that an idempotency key has been used for a request with another body.
	ErrKeyReused = errors.New("the idempotency key was used with another body")
	// ErrUnavailable says that the store did not answer in time, or is too busy: the same request may succeed later. It
	// says nothing about whether the change was made; an idempotency key or payment id makes asking again safe.
	ErrUnavailable = errors.New("the store is not available")
)

// OutOfStockError says that a product has fewer available units than an order asks for.
type OutOfStockError struct{ SKU string }

func (e *OutOfStockError) Error() string { return "not enough units of " + e.SKU + " are available" }

// FieldError is one field of an input and the rule that it breaks.
type FieldError struct {
	Field  string // a path such as items[2].quantity
	Detail string // what is allowed there
}

func (e FieldError) Error() string { return e.Field + ": " + e.Detail }

// InvalidError lists every field of an input that breaks a rule, in the order in which they were found.
type InvalidError struct{ Fields []FieldError }

func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		texts[i] = f.Error()
	}
	return strings.Join(texts, "; ")
}

// Invalid is the error of one field.
func Invalid(field, detail string) error {
	return &InvalidError{Fields: []FieldError{{Field: field, Detail: detail}}}
}

// Faults collects broken rules. The zero value is ready.
type Faults struct{ fields []FieldError }

// Add notes that field breaks a rule.
func (f *Faults) Add(field, detail string) {
	f.fields = append(f.fields, FieldError{Field: field, Detail: detail})
}

// Check notes that field breaks a rule unless ok.
func (f *Faults) Check(ok bool, field, detail string) {
	if !ok {
		f.Add(field, detail)
	}
}

// Err is nil if no rule was broken, else an *InvalidError.
func (f *Faults) Err() error {
	if len(f.fields) == 0 {
		return nil
	}
	return &InvalidError{Fields: f.fields}
}
