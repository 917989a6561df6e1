package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/duebox/duebox/internal/certs"
	"github.com/duebox/duebox/internal/loopback"
	"github.com/duebox/duebox/model"
)

// caller is who a request acts for.
type caller struct {
	name string // what the audit calls them
	via  string // api, or ui for the operator's page
	user string // by a signed identity: only what is theirs
}

const callerKey = "caller"

// actorOf is who acts by a request that admin has let pass, and by what: "api" for a token and "ui" for the operator's page.
func actorOf(c *gin.Context) (actor, via string) {
	who, _ := c.MustGet(callerKey).(caller)
	return who.name, who.via
}

const (
	actorHeader = "Duebox-Actor"
	actorRule   = "must be 1 to 64 printable characters without blanks around them"
)

// validActor keeps out what would look like something else in a log or on a page.
func validActor(name string) bool {
	return utf8.ValidString(name) && 1 <= utf8.RuneCountInString(name) && utf8.RuneCountInString(name) <= 64 &&
		strings.TrimSpace(name) == name && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// namedActor is the name that a request gives whoever acts by it, else the given one.
func namedActor(r *http.Request, otherwise string) (string, error) {
	values := r.Header.Values(actorHeader)
	if len(values) == 0 {
		return otherwise, nil
	}
	if len(values) > 1 || !validActor(values[0]) {
		return "", model.Invalid(actorHeader, actorRule)
	}
	return values[0], nil
}

// access lets those requests pass that identify finds a caller for. What passes is counted against its user or else its address, and what does not
// apart, against its address.
func (s *Server) access(identify func(r *http.Request) (caller, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		who, err := identify(c.Request)
		limits, client := s.limits.known, address(c.Request)
		switch {
		case err != nil:
			limits = s.limits.strangers
		case who.user != "":
			client = "user " + who.user
		}
		if wait := limits.take(client, time.Now()); wait > 0 {
			s.fail(c, &limitError{wait})
			return
		}
		if err != nil {
			s.fail(c, err)
			return
		}
		c.Set(callerKey, who)
	}
}

// holder identifies who holds the API token.
func (s *Server) holder(r *http.Request) (caller, error) {
	who := caller{name: "api", via: "api"}
	if s.apiToken == nil {
		return who, local(r)
	}
	if !s.apiToken.is(bearer(r)) {
		return caller{}, errUnauthorized
	}
	return who, nil
}

// scraper identifies who may read the metrics.
func (s *Server) scraper(r *http.Request) (caller, error) {
	if s.adminToken == nil {
		return caller{}, local(r)
	}
	if !s.adminToken.is(bearer(r)) {
		return caller{}, errUnauthorized
	}
	return caller{}, nil
}

// operator identifies who holds the admin token, or a session of the page. If there is no admin token although the rest of /v1 wants
// one, it is nobody: who has set one has not meant to leave this open.
func (s *Server) operator(r *http.Request) (caller, error) {
	switch {
	case s.adminToken == nil && s.apiToken != nil:
		return caller{}, errNoAdmin
	case s.adminToken == nil:
		if err := local(r); err != nil {
			return caller{}, err
		}
		if s.sessions.vouches(r, session{}) {
			return caller{name: localName, via: "ui"}, nil
		}
		name, err := namedActor(r, localName)
		return caller{name: name, via: "api"}, err
	case r.Header.Get("Authorization") != "":
		if !s.adminToken.is(bearer(r)) {
			return caller{}, errUnauthorized
		}
		name, err := namedActor(r, "admin")
		return caller{name: name, via: "api"}, err
	}
	open, err := s.sessions.of(r)
	if err != nil {
		return caller{}, err
	}
	if !isSafe(r.Method) && (sameOrigin(r) != nil || !s.sessions.vouches(r, open)) {
		return caller{}, errForged
	}
	return caller{name: open.Name, via: "ui"}, nil
}

// certified lets those requests pass that have shown a certificate, where one is wanted. Probes come from machines, which have none.
func (s *Server) certified(c *gin.Context) {
	if s.cfg.ClientCertificates && !isProbe(c.FullPath()) && !certs.IsKnown(c.Request.TLS) {
		s.fail(c, errNoCertificate)
	}
}

func isProbe(route string) bool { return route == "/healthz" || route == "/readyz" }

// local lets a request pass to a server without a token, which whoever is on this machine may use. A browser is on this machine too, and
// shows pages of others: so a request must name this machine, which one of a page whose name resolves to it does not (DNS
// rebinding), and must change nothing if another page has sent it.
func local(r *http.Request) error {
	if !loopback.Is(r.Host) {
		return errNotLocal
	}
	return sameOrigin(r)
}

// sameOrigin is an error for a request that may change something and that a page of another origin has made a browser send.
func sameOrigin(r *http.Request) error {
	if http.NewCrossOriginProtection().Check(r) != nil {
		return errForged
	}
	return nil
}

func isSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// token is a secret that requests are compared with; nil for none.
type token struct{ sum [sha256.Size]byte }

func newToken(text string) *token {
	if text == "" {
		return nil
	}
	return &token{sha256.Sum256([]byte(text))}
}

// is compares hashes, which are of one length, so that the time that it takes tells nothing.
func (t *token) is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}

// bearer is the token that a request carries, empty if it carries none.
func bearer(r *http.Request) string {
	scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return got
}
