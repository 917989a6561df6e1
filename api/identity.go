package api

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/duebox/duebox/internal/watched"
	"github.com/duebox/duebox/model"
)

const (
	// What RFC 7518, section 3.2, asks of a key of HS256.
	minSecret = 32
	minRSA    = 2048 // bits
	// How much the clock of whoever signs may be wrong.
	clockSkew = 10 * time.Second
)

// identities judges signed identities: JSON Web Tokens (RFC 7519) whose subject is a user. Which algorithms are taken depends on the
// keys that were configured, and never on the token (RFC 8725).
type identities struct {
	secret           []byte                            // HS256; nil for none
	keys             *watched.Files[[]jose.JSONWebKey] // RS256 and ES256; nil for none
	issuer, audience string
}

// newIdentities is nil where no identities are taken.
func newIdentities(cfg Config) (*identities, error) {
	i := &identities{issuer: cfg.JWTIssuer, audience: cfg.JWTAudience}
	switch {
	case cfg.JWTSecret == "" && cfg.JWKSFile == "":
		return nil, nil //nolint:nilnil // none is no error
	case cfg.APIToken == "":
		return nil, errors.New("api: signed identities need an APIToken: without one everybody could do without")
	case cfg.JWTSecret != "" && cfg.JWKSFile != "":
		return nil, errors.New("api: JWTSecret and JWKSFile are set, want one of them")
	case cfg.JWTSecret != "":
		if len(cfg.JWTSecret) < minSecret {
			return nil, fmt.Errorf("api: JWTSecret is shorter than %d bytes", minSecret)
		}
		i.secret = []byte(cfg.JWTSecret)
		return i, nil
	}
	told := func(err error) {
		cfg.Log.LogAttrs(context.Background(), slog.LevelError, "the keys of signed identities cannot be read, those read before stay", slog.Any("error", err))
	}
	var err error
	if i.keys, err = watched.Open(parseKeys, told, cfg.JWKSFile); err != nil {
		return nil, fmt.Errorf("api: JWT_JWKS_FILE: %w", err)
	}
	if len(i.keys.Get()) == 0 {
		return nil, errors.New("api: JWT_JWKS_FILE: the file has no key")
	}
	return i, nil
}

// parseKeys reads a JWK Set (RFC 7517). Keys of other kinds and for other uses are passed over. A set without any key takes back those that were
// trusted before; one without any that is usable is a mistake.
func parseKeys(contents [][]byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(contents[0], &set); err != nil {
		return nil, errors.New("the file is not a JWK Set")
	}
	var usable []jose.JSONWebKey
	for n, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); errors.Is(err, jose.ErrUnsupportedKeyType) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("key %d is not valid", n)
		}
		if !key.IsPublic() {
			return nil, fmt.Errorf("key %d is a private or secret key, and whoever can read the file can sign with it", n)
		}
		if (key.Use == "" || key.Use == "sig") && algorithmOf(key) != "" {
			usable = append(usable, key)
		}
	}
	if len(usable) == 0 && (set.Keys == nil || len(set.Keys) > 0) {
		return nil, fmt.Errorf("the file has no RSA key of %d bits or more and no P-256 key for signatures", minRSA)
	}
	return usable, nil
}

// algorithmOf is the one algorithm that a key is good for, empty if it is for none of ours.
func algorithmOf(key jose.JSONWebKey) jose.SignatureAlgorithm {
	var a jose.SignatureAlgorithm
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() >= minRSA {
			a = jose.RS256
		}
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			a = jose.ES256
		}
	}
	if key.Algorithm != "" && key.Algorithm != string(a) {
		return ""
	}
	return a
}

// looksSigned tells a signed identity from other tokens.
func looksSigned(token string) bool { return strings.Count(token, ".") == 2 }

// user is the subject of a signed identity. Errors are identityErrors.
func (i *identities) user(token string) (string, error) {
	claims, err := i.verify(token)
	if err != nil {
		return "", err
	}
	want := jwt.Expected{Issuer: i.issuer, Time: time.Now()}
	if i.audience != "" {
		want.AnyAudience = jwt.Audience{i.audience}
	}
	switch err := claims.ValidateWithLeeway(want, clockSkew); {
	case errors.Is(err, jwt.ErrExpired):
		return "", identityError("it has expired")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return "", identityError("it is not valid yet")
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return "", identityError("its issuer is another one")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return "", identityError("it is for another audience")
	case err != nil:
		return "", identityError("its claims are not valid")
	case claims.Expiry == nil:
		return "", identityError("it has no expiry")
	case !model.ValidID(claims.Subject):
		return "", identityError("its subject " + model.IDRule)
	}
	return claims.Subject, nil
}

// verify returns the claims of a token that one of our keys has signed.
func (i *identities) verify(token string) (jwt.Claims, error) {
	algorithms := []jose.SignatureAlgorithm{jose.RS256, jose.ES256}
	if i.secret != nil {
		algorithms = []jose.SignatureAlgorithm{jose.HS256}
	}
	var claims jwt.Claims
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return claims, identityError("it is not a JSON Web Token that is signed by an algorithm that is taken here")
	}
	if i.secret != nil {
		if parsed.Claims(i.secret, &claims) != nil {
			return claims, errUntrusted
		}
		return claims, nil
	}
	head := parsed.Headers[0]
	for _, key := range i.keys.Get() {
		fits := string(algorithmOf(key)) == head.Algorithm && (head.KeyID == "" || head.KeyID == key.KeyID)
		if fits && parsed.Claims(key.Key, &claims) == nil {
			return claims, nil
		}
	}
	return claims, errUntrusted
}

// identityError says why a signed identity is refused.
type identityError string

func (e identityError) Error() string { return "api: the signed identity is refused: " + string(e) }

const errUntrusted = identityError("its signature is not one of a key that is trusted here, or its claims cannot be read")

// user identifies who may use the routes of orders: who holds the API token, which speaks for all users, or one user by a signed identity.
func (s *Server) user(r *http.Request) (caller, error) {
	token := bearer(r)
	if s.identities == nil || !looksSigned(token) || s.apiToken.is(token) {
		return s.holder(r)
	}
	name, err := s.identities.user(token)
	return caller{name: name, via: "api", user: name}, err
}

// service identifies who holds the API token itself.
func (s *Server) service(r *http.Request) (caller, error) {
	who, err := s.user(r)
	if err == nil && who.user != "" {
		err = errNeedsToken
	}
	return who, err
}

// userOf is the user whose orders alone a request may see and touch, empty for all.
func userOf(c *gin.Context) string {
	who, _ := c.MustGet(callerKey).(caller)
	return who.user
}

// own makes sure that a request may act on an order.
func (s *Server) own(c *gin.Context, no string) error {
	if userOf(c) == "" {
		return nil
	}
	o, err := s.orders.Order(c.Request.Context(), no)
	return cmp.Or(err, theirs(c, o)) // an order's user never changes
}

// theirs is an error if a request may not see an order: somebody else's is answered like one that there is none of.
func theirs(c *gin.Context, o model.Order) error {
	if user := userOf(c); user != "" && o.User != user {
		return model.ErrNoOrder
	}
	return nil
}
