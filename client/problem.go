package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProblemType names what went wrong. The server may name others than these, as it grows.
type ProblemType string

// The types of problems.
const (
	AdminTokenNotSet     ProblemType = "admin-token-not-set"
	AnotherUser          ProblemType = "another-user"
	BodyTimeout          ProblemType = "body-timeout"
	BodyTooLarge         ProblemType = "body-too-large"
	CertificateRequired  ProblemType = "certificate-required"
	DeliveryDead         ProblemType = "delivery-dead"
	DeliveryDone         ProblemType = "delivery-done"
	DeliveryEarly        ProblemType = "delivery-early"
	DeliveryForeign      ProblemType = "delivery-foreign"
	DeliveryStale        ProblemType = "delivery-stale"
	DeliveryWithdrawn    ProblemType = "delivery-withdrawn"
	ForgedRequest        ProblemType = "forged-request"
	IdempotencyKeyReused ProblemType = "idempotency-key-reused"
	IdentityRefused      ProblemType = "identity-refused"
	Internal             ProblemType = "internal"
	InvalidInput         ProblemType = "invalid-input"
	MessageExists        ProblemType = "message-exists"
	MessageProtected     ProblemType = "message-protected"
	MethodNotAllowed     ProblemType = "method-not-allowed"
	NoLogin              ProblemType = "no-login"
	NoSuchDelivery       ProblemType = "no-such-delivery"
	NoSuchMessage        ProblemType = "no-such-message"
	NoSuchOrder          ProblemType = "no-such-order"
	NoSuchProduct        ProblemType = "no-such-product"
	NoSuchRun            ProblemType = "no-such-run"
	NoTables             ProblemType = "no-tables"
	NotFound             ProblemType = "not-found"
	NotLocal             ProblemType = "not-local"
	OrderClosed          ProblemType = "order-closed"
	OrderPaid            ProblemType = "order-paid"
	OutOfStock           ProblemType = "out-of-stock"
	PayloadTooLarge      ProblemType = "payload-too-large"
	PaymentIDTaken       ProblemType = "payment-id-taken"
	TokenRequired        ProblemType = "token-required"
	TooManyRequests      ProblemType = "too-many-requests"
	TopicReserved        ProblemType = "topic-reserved"
	Unauthorized         ProblemType = "unauthorized"
	Unavailable          ProblemType = "unavailable"
	UnsupportedMediaType ProblemType = "unsupported-media-type"
	WrongAmount          ProblemType = "wrong-amount"
	WrongState           ProblemType = "wrong-state"
	WrongToken           ProblemType = "wrong-token"
)

const problemPrefix = "urn:duebox:problem:"

// ProblemError is an answer that is no success.
type ProblemError struct {
	Type       ProblemType // empty if the answer was not duebox's: a proxy's, say
	Title      string
	Status     int
	Detail     string
	Fields     []FieldFault  // the fields at fault, of InvalidInput
	RetryAfter time.Duration // what the server asks for before the next try; zero if it asks for nothing
}

// FieldFault is a field of the request and what is allowed there.
type FieldFault struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (p *ProblemError) Error() string {
	if p.Type == "" {
		return fmt.Sprintf("%d %s: %s", p.Status, http.StatusText(p.Status), p.Detail)
	}
	texts := []string{p.Detail}
	if len(p.Fields) > 0 {
		texts = nil
	}
	for _, f := range p.Fields {
		texts = append(texts, f.Field+": "+f.Detail)
	}
	return fmt.Sprintf("%d %s: %s", p.Status, p.Type, strings.Join(texts, "; "))
}

// TypeOf is the type of the problem that err is or wraps; empty if it is none.
func TypeOf(err error) ProblemType {
	p, ok := errors.AsType[*ProblemError](err)
	if !ok {
		return ""
	}
	return p.Type
}

// problemOf reads an answer that is no success.
func problemOf(resp *http.Response, body []byte) *ProblemError {
	const most = 300 // of what is not ours
	p := &ProblemError{Status: resp.StatusCode}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	var doc struct {
		Type   string       `json:"type"`
		Title  string       `json:"title"`
		Detail string       `json:"detail"`
		Errors []FieldFault `json:"errors"`
	}
	name, ok := "", false
	if json.Unmarshal(body, &doc) == nil {
		name, ok = strings.CutPrefix(doc.Type, problemPrefix)
	}
	if !ok {
		p.Detail = strings.ToValidUTF8(string(body[:min(len(body), most)]), "")
		return p
	}
	p.Type, p.Title, p.Detail, p.Fields = ProblemType(name), doc.Title, doc.Detail, doc.Errors
	return p
}
