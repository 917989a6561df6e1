package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// This file is the only one that knows HTTP status codes.

var (
	errNoRun         = errors.New("api: there is no such run of the reconciler, or its record has been purged")
	errNoRoute       = errors.New("api: nothing is served at this path")
	errNoMethod      = errors.New("api: this path does not serve this method")
	errUnauthorized  = errors.New("api: a bearer token is required")
	errWrongToken    = errors.New("api: the token is not the admin token")
	errForged        = errors.New("api: the request changes something and comes from a page of another origin, or lacks the X-CSRF-Token of its session")
	errNotLocal      = errors.New("api: this server has no token and answers only to localhost and loopback addresses, not to the Host of this request")
	errNeedsToken    = errors.New("api: this path wants the API_TOKEN itself; the signed identity of a user opens orders only")
	errOtherUser     = errors.New("api: the signed identity is of another user")
	errNoCertificate = errors.New("api: a client certificate is required")
	errNoLogin       = errors.New("api: ADMIN_TOKEN is not set, so there is nothing to log in with")
	errNoAdmin       = errors.New("api: ADMIN_TOKEN is not set, and API_TOKEN does not open this path")
	errTooLarge      = errors.New("api: the body is larger than 65536 bytes")
	errMediaType     = errors.New("api: the body must be application/json in UTF-8, without a content encoding")
	errSlowBody      = errors.New("api: the body did not arrive in time")
	errPanic         = errors.New("api: panic")

	errMessageTooLarge = errors.New("api: the body is larger than 524288 bytes")
	errNoMessage       = errors.New("api: there is no live message of this topic and key; one that has ended is found by its id")
	errNoMessageID     = errors.New("api: no message has this id, or it has been purged")
	errNoDelivery      = errors.New("api: no message has this id and generation")
	errMessageExists   = errors.New("api: a live message has this topic and key, and If-None-Match asks for none")
	errOrderTopic      = errors.New("api: messages of this topic belong to the order service")
	errGone            = errors.New("api: the client has left")
)

// reply is a successful answer.
type reply struct {
	status   int
	location string
	body     any
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

func created(location string, body any) reply {
	return reply{status: http.StatusCreated, location: location, body: body}
}

func accepted(location string, body any) reply {
	return reply{status: http.StatusAccepted, location: location, body: body}
}

func nothing() reply { return reply{status: http.StatusNoContent} }

func (r reply) write(c *gin.Context) {
	if r.status == http.StatusNoContent {
		c.Header("Cache-Control", "no-store")
		c.Status(r.status)
		c.Writer.WriteHeaderNow()
		return
	}
	if r.location != "" {
		c.Header("Location", r.location)
	}
	writeJSON(c, r.status, "application/json", r.body)
}

// problem is a problem document of RFC 9457. Errors lists the fields at fault.
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Errors []fieldFault `json:"errors,omitempty"`
}

type fieldFault struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

const (
	problemType = "urn:duebox:problem:"
	maxFaults   = 20 // fields that one document names
	// What logs and metrics show of a request whose client did not wait; no client ever sees it.
	statusGone = 499
	retryAfter = 2 // seconds
)

// describe says what err means to the client. The detail of an error that the client did not cause is a fixed text.
func describe(err error) problem {
	if invalid, ok := errors.AsType[*model.InvalidError](err); ok {
		p := problem{"invalid-input", "The request breaks a rule", http.StatusBadRequest, invalid.Fields[0].Error(), nil}
		for _, f := range invalid.Fields[:min(len(invalid.Fields), maxFaults)] {
			p.Errors = append(p.Errors, fieldFault(f))
		}
		return p
	}
	if field, ok := errors.AsType[*outbox.FieldError](err); ok && !errors.Is(err, outbox.ErrPayloadTooLarge) {
		return describe(model.Invalid(cmp.Or(field.Field, "body"), field.Detail))
	} else if ok {
		return problem{"payload-too-large", "Payload too large", http.StatusRequestEntityTooLarge, field.Detail, nil}
	}
	if refused, ok := errors.AsType[*outbox.RefusedError](err); ok {
		return describeRefusal(refused)
	}
	if refused, ok := errors.AsType[identityError](err); ok {
		return problem{"identity-refused", "The identity is refused", http.StatusUnauthorized, strings.TrimPrefix(refused.Error(), "api: "), nil}
	}
	if limit, ok := errors.AsType[*limitError](err); ok {
		return problem{"too-many-requests", "Too many requests", http.StatusTooManyRequests, strings.TrimPrefix(limit.Error(), "api: "), nil}
	}
	if protected, ok := errors.AsType[*outbox.ProtectedError](err); ok {
		return problem{"message-protected", "The message is protected", http.StatusConflict, protected.Err.Error(), nil}
	}
	if errors.Is(err, outbox.ErrWrongState) {
		return problem{"wrong-state", "Wrong state", http.StatusConflict, strings.TrimPrefix(err.Error(), "outbox: "), nil}
	}
	if short, ok := errors.AsType[*model.OutOfStockError](err); ok {
		return problem{"out-of-stock", "Out of stock", http.StatusConflict, short.Error(), nil}
	}
	for _, known := range []struct {
		err   error
		name  string
		title string
		code  int
	}{
		{model.ErrNoOrder, "no-such-order", "No such order", http.StatusNotFound},
		{model.ErrNoProduct, "no-such-product", "No such product", http.StatusNotFound},
		{model.ErrPaid, "order-paid", "The order is paid", http.StatusConflict},
		{model.ErrClosed, "order-closed", "The order is closed", http.StatusConflict},
		{model.ErrPaymentTaken, "payment-id-taken", "The payment id is taken", http.StatusConflict},
		{model.ErrKeyReused, "idempotency-key-reused", "The idempotency key was used before", http.StatusConflict},
		{model.ErrWrongAmount, "wrong-amount", "Wrong amount", http.StatusUnprocessableEntity},
		{errNoRun, "no-such-run", "No such run", http.StatusNotFound},
		{errNoRoute, "not-found", "Not found", http.StatusNotFound},
		{errNoMethod, "method-not-allowed", "Method not allowed", http.StatusMethodNotAllowed},
		{errUnauthorized, "unauthorized", "Unauthorized", http.StatusUnauthorized},
		{errWrongToken, "wrong-token", "Wrong token", http.StatusForbidden},
		{errForged, "forged-request", "The request may be forged", http.StatusForbidden},
		{errNotLocal, "not-local", "Not this machine", http.StatusForbidden},
		{errNeedsToken, "token-required", "The token is required", http.StatusForbidden},
		{errOtherUser, "another-user", "Another user", http.StatusForbidden},
		{errNoCertificate, "certificate-required", "A certificate is required", http.StatusForbidden},
		{errNoLogin, "no-login", "There is no login", http.StatusConflict},
		{errNoAdmin, "admin-token-not-set", "The admin token is not set", http.StatusForbidden},
		{errNoMessage, "no-such-message", "No such message", http.StatusNotFound},
		{errNoMessageID, "no-such-message", "No such message", http.StatusNotFound},
		{errNoDelivery, "no-such-delivery", "No such delivery", http.StatusNotFound},
		{errMessageExists, "message-exists", "The message exists", http.StatusPreconditionFailed},
		{errOrderTopic, "topic-reserved", "The topic is reserved", http.StatusForbidden},
		{errMessageTooLarge, "body-too-large", "Body too large", http.StatusRequestEntityTooLarge},
		{errTooLarge, "body-too-large", "Body too large", http.StatusRequestEntityTooLarge},
		{errMediaType, "unsupported-media-type", "Unsupported media type", http.StatusUnsupportedMediaType},
		{errSlowBody, "body-timeout", "Body timeout", http.StatusRequestTimeout},
		{ErrNoTables, "no-tables", "Not ready", http.StatusServiceUnavailable},
		{errGone, "client-gone", "The client has left", statusGone},
	} {
		if errors.Is(err, known.err) {
			return problem{known.name, known.title, known.code, strings.TrimPrefix(known.err.Error(), "api: "), nil}
		}
	}
	if outbox.LacksTable(err) {
		return problem{
			"unavailable", "Temporarily unavailable", http.StatusServiceUnavailable,
			"the database lacks tables or columns that this version needs: run duebox migrate", nil,
		}
	}
	if errors.Is(err, model.ErrUnavailable) {
		return problem{
			"unavailable", "Temporarily unavailable", http.StatusServiceUnavailable,
			"the service cannot answer for now; the same request may succeed later", nil,
		}
	}
	return problem{
		"internal", "Internal error", http.StatusInternalServerError,
		"something went wrong on our side; the cause is in the log", nil,
	}
}

// describeRefusal says why a delivery must not take effect.
func describeRefusal(refused *outbox.RefusedError) problem {
	switch refused.Outcome { //nolint:exhaustive // a refusal has these and no others
	case outbox.OutcomeEarly:
		return problem{"delivery-early", "Too early", http.StatusTooEarly, "the message is not due; ask again after the seconds of Retry-After", nil}
	case outbox.OutcomeStale:
		return problem{"delivery-stale", "The delivery is stale", http.StatusConflict, "the message has been rescheduled or replaced since", nil}
	case outbox.OutcomeCanceled:
		return problem{"delivery-withdrawn", "The message is withdrawn", http.StatusConflict, "the message has been withdrawn", nil}
	case outbox.OutcomeDuplicate:
		return problem{"delivery-done", "The message is done", http.StatusConflict, "the message has been marked done before", nil}
	case outbox.OutcomeDead:
		return problem{"delivery-dead", "The message is dead", http.StatusConflict, "the message is dead and waits for an operator", nil}
	case outbox.OutcomeForeign:
		return problem{"delivery-foreign", "The delivery is foreign", http.StatusConflict, "the delivery belongs to another store", nil}
	}
	return describe(errNoDelivery)
}

// retry is what Retry-After says of an error, in seconds.
func retry(err error) int {
	const most = 60
	if limit, ok := errors.AsType[*limitError](err); ok {
		return limit.seconds()
	}
	refused, ok := errors.AsType[*outbox.RefusedError](err)
	if !ok {
		return retryAfter
	}
	return int(min(most, refused.Early/time.Second+1))
}

// fail answers with the problem that err is, and logs what the client is not told.
func (s *Server) fail(c *gin.Context, err error) {
	ctx := c.Request.Context()
	if errors.Is(ctx.Err(), context.Canceled) {
		err = errGone
	}
	p := describe(err)
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooEarly, http.StatusTooManyRequests:
		c.Header("Retry-After", strconv.Itoa(retry(err)))
	case http.StatusUnauthorized:
		c.Header("WWW-Authenticate", `Bearer realm="duebox"`)
	}
	if p.Status >= http.StatusInternalServerError {
		level := slog.LevelError
		if p.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn
		}
		s.cfg.Log.LogAttrs(ctx, level, "request not served",
			slog.String("method", c.Request.Method), slog.String("route", c.FullPath()), slog.Any("error", err))
	}
	p.Type = problemType + p.Type
	writeJSON(c, p.Status, "application/problem+json", p)
}

// writeJSON writes nothing if an answer has begun.
func writeJSON(c *gin.Context, status int, contentType string, body any) {
	c.Abort()
	if c.Writer.Written() {
		return
	}
	c.Header("Content-Type", contentType)
	c.Header("Cache-Control", "no-store")
	c.Header("X-Content-Type-Options", "nosniff")
	c.Status(status)
	enc := json.NewEncoder(c.Writer)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the bodies always encode; a client that has left is nobody to tell
}
