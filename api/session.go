package api

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	sessionCookie = "duebox_session"
	csrfHeader    = "X-Csrf-Token"
	sessionLife   = 12 * time.Hour
	localName     = "local" // who acts where nobody has to log in
)

// session is what the cookie says. No server keeps it: each that has the admin token can judge it, and none can end it before
// its time but by another admin token.
type session struct {
	Name  string `json:"name"`
	Until int64  `json:"until"` // Unix time
	Nonce string `json:"nonce"`
}

// sessions seals and opens the page's cookies by a key that only who has the admin token can know.
type sessions struct{ key []byte }

// newSessions derives the key from the admin token. Without one it is a new one, for there are no cookies then.
func newSessions(adminToken string) (*sessions, error) {
	if adminToken == "" {
		adminToken = rand.Text()
	}
	key, err := hkdf.Key(sha256.New, []byte(adminToken), nil, "duebox page session", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("api: derive the key of sessions: %w", err)
	}
	return &sessions{key}, nil
}

func (s *sessions) begin(name string, until time.Time) (cookie string) {
	text, _ := json.Marshal(session{Name: name, Until: until.Unix(), Nonce: rand.Text()}) // such a struct always encodes
	body := base64.RawURLEncoding.EncodeToString(text)
	return body + "." + s.sum("cookie", body)
}

// of is the session of a request's cookie.
func (s *sessions) of(r *http.Request) (session, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return session{}, errUnauthorized
	}
	body, sum, _ := strings.Cut(cookie.Value, ".")
	if !hmac.Equal([]byte(sum), []byte(s.sum("cookie", body))) {
		return session{}, errUnauthorized
	}
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return session{}, errUnauthorized
	}
	var open session
	if json.Unmarshal(text, &open) != nil || time.Now().Unix() >= open.Until {
		return session{}, errUnauthorized
	}
	return open, nil
}

// csrf is what a page of ours knows of its session, and a page of others does not.
func (s *sessions) csrf(of session) string { return s.sum("csrf", of.Nonce) }

// vouches reports whether a request carries the session's CSRF token.
func (s *sessions) vouches(r *http.Request, of session) bool {
	return hmac.Equal([]byte(r.Header.Get(csrfHeader)), []byte(s.csrf(of)))
}

func (s *sessions) sum(purpose, text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(purpose + " " + text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sessionJSON is what the page knows of who uses it.
type sessionJSON struct {
	Name          string `json:"name"`
	CSRF          string `json:"csrf"`
	LoginRequired bool   `json:"login_required"`
}

// logIn begins a session for who knows the admin token.
func (s *Server) logIn(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	if err := sameOrigin(c.Request); err != nil {
		return reply{}, err
	}
	if s.adminToken == nil {
		return reply{}, errNoLogin
	}
	if wait := s.limits.logins.take(address(c.Request), time.Now()); wait > 0 {
		return reply{}, &limitError{wait}
	}
	in, err := readBody(c)
	if err != nil {
		return reply{}, err
	}
	token, name := in.text("token"), in.text("name")
	in.faults.Check(validActor(name), "name", actorRule)
	if err := in.end(); err != nil {
		return reply{}, err
	}
	if !s.adminToken.is(token) {
		return reply{}, errWrongToken
	}
	setSession(c, s.sessions.begin(name, time.Now().Add(sessionLife)), sessionLife)
	return nothing(), nil
}

// getSession says who uses the page.
func (s *Server) getSession(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	switch {
	case s.adminToken == nil && s.apiToken != nil:
		return reply{}, errNoAdmin
	case s.adminToken == nil:
		return ok(sessionJSON{Name: localName, CSRF: s.sessions.csrf(session{})}), local(c.Request)
	}
	open, err := s.sessions.of(c.Request)
	return ok(sessionJSON{Name: open.Name, CSRF: s.sessions.csrf(open), LoginRequired: true}), err
}

// logOut has the browser forget its session.
func (s *Server) logOut(c *gin.Context) (reply, error) {
	if _, err := query(c); err != nil {
		return reply{}, err
	}
	if err := readNothing(c); err != nil {
		return reply{}, err
	}
	if err := sameOrigin(c.Request); err != nil {
		return reply{}, err
	}
	setSession(c, "", -time.Second)
	return nothing(), nil
}

// setSession sets the cookie. It is for encrypted connections only where this one is, be it to a proxy in front.
func setSession(c *gin.Context, value string, life time.Duration) {
	http.SetCookie(c.Writer, &http.Cookie{ //nolint:gosec // a server on loopback is used without encryption
		Name: sessionCookie, Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: c.Request.TLS != nil || c.GetHeader("X-Forwarded-Proto") == "https",
	})
}

// pageHeaders says what a browser may do with what is below /ui: run and show what comes from here, in no frame, and tell nobody.
func pageHeaders(c *gin.Context) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
			"form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	} {
		c.Header(name, value)
	}
}
