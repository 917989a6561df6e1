package api_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
)

const jwtSecret = "0123456789abcdef0123456789abcdef"

// claims are those of an identity of ann that is good for a minute; changes replace some, and nil removes one.
func claims(changes map[string]any) map[string]any {
	all := map[string]any{"sub": "ann", "iss": "https://id.example", "aud": []string{"other", "shop"}, "exp": time.Now().Add(time.Minute).Unix()}
	for name, value := range changes {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return all
}

// signed is the header line of an identity.
func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if kid != "" {
		options = options.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	require.NoError(t, err)
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	jws, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return "Authorization: Bearer " + token
}

// unsigned is one with a header of its own and a signature that is none.
func unsigned(t *testing.T, header, signature string) string {
	t.Helper()
	payload, err := json.Marshal(claims(nil))
	require.NoError(t, err)
	return "Authorization: Bearer " + base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload) + "." + signature
}

func writeKeys(t *testing.T, path string, keys ...jose.JSONWebKey) {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return key
}

func identified(cfg api.Config) api.Config {
	cfg.APIToken, cfg.AdminToken, cfg.JWTIssuer, cfg.JWTAudience = "api-token", "admin-token", "https://id.example", "shop"
	return cfg
}

func TestIdentity_SeesAndTouchesItsOwnOrdersOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t, identified(api.Config{JWTSecret: jwtSecret}))
	const token = "Authorization: Bearer api-token"
	ann := signed(t, jose.HS256, []byte(jwtSecret), "", claims(nil))
	bob := signed(t, jose.HS256, []byte(jwtSecret), "", claims(map[string]any{"sub": "bob"}))
	require.Equal(t, http.StatusOK, s.do("PUT", "/v1/products/cup", `{"name":"Cup","stock":100}`, token).status)
	place := func(user string) string {
		a := s.do("POST", "/v1/orders", strings.Replace(order("cup"), "ann", user, 1), map[string]string{"ann": ann, "bob": bob}[user])
		require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
		no, _ := a.json(t)["no"].(string)
		return no
	}
	mine, theirs := place("ann"), place("bob")
	before := s.contents(t.Context())

	due := `{"due_at":"` + time.Now().Add(time.Hour).Format(time.RFC3339) + `"}`
	acts := [][3]string{{"GET", ""}, {"POST", "/cancel"}}
	for _, act := range acts {
		none := s.do(act[0], "/v1/orders/none"+act[1], act[2], ann)
		a := s.do(act[0], "/v1/orders/"+theirs+act[1], act[2], ann)
		require.Equal(t, http.StatusNotFound, a.status, "%s", act)
		require.Equal(t, string(none.body), string(a.body), "nothing tells it from one that there is none of")
	}
	a := s.do("POST", "/v1/orders", strings.Replace(order("cup"), "ann", "bob", 1), ann)
	require.Equal(t, http.StatusForbidden, a.status)
	kind, _ := a.problem(t)
	require.Equal(t, "another-user", kind)
	require.Equal(t, http.StatusForbidden, s.do("GET", "/v1/orders?user=bob", "", ann).status)
	for _, query := range []string{"", "?user=ann", "?after=zzz", "?status=pending"} {
		a := s.do("GET", "/v1/orders"+query, "", ann)
		require.Equal(t, http.StatusOK, a.status)
		require.NotContains(t, string(a.body), theirs)
		require.NotContains(t, string(a.body), "bob")
	}
	require.Contains(t, string(s.do("GET", "/v1/orders", "", ann).body), mine)
	for _, r := range [][3]string{
		{"POST", "/v1/orders/" + mine + "/pay", `{"payment_id":"p","amount":500}`},
		{"PATCH", "/v1/orders/" + mine + "/due", due},
		{"GET", "/v1/products/cup"},
		{"PUT", "/v1/products/cup", `{"name":"x","stock":1}`},
		{"PUT", "/v1/messages/cart.remind/1", "{}"},
		{"GET", "/v1/messages/order.expire/" + mine},
		{"PATCH", "/v1/messages/cart.remind/1", `{"delay":"1h"}`},
		{"DELETE", "/v1/messages/cart.remind/1"},
		{"GET", "/v1/deliveries/1?generation=1"},
		{"POST", "/v1/deliveries/1/done", `{"generation":1}`},
	} {
		a := s.do(r[0], r[1], r[2], ann)
		require.Equal(t, http.StatusForbidden, a.status, "%s", r)
		kind, _ := a.problem(t)
		require.Equal(t, "token-required", kind)
	}
	require.Equal(t, http.StatusUnauthorized, s.do("POST", "/v1/admin/reconcile", "{}", ann).status)
	require.Equal(t, http.StatusUnauthorized, s.do("GET", "/metrics", "", ann).status)
	require.Equal(t, before, s.contents(t.Context()))

	for _, act := range acts {
		require.Equal(t, http.StatusOK, s.do(act[0], "/v1/orders/"+theirs+act[1], act[2], bob).status, "%s", act)
	}
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/orders/"+mine+"/cancel", "", ann).status)
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/orders/"+theirs, "", token).status, "who holds the token speaks for all")
}

// Whoever signs has the say on nothing but what is checked here.
func TestIdentity_IsRefused(t *testing.T) {
	t.Parallel()
	signing, other := rsaKey(t, 2048), rsaKey(t, 2048)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "keys.json")
	writeKeys(t, path,
		jose.JSONWebKey{Key: &signing.PublicKey, KeyID: "one", Algorithm: "RS256", Use: "sig"},
		jose.JSONWebKey{Key: &curve.PublicKey, KeyID: "two"},
		jose.JSONWebKey{Key: &other.PublicKey, KeyID: "sealing", Use: "enc"})
	public := newServer(t, identified(api.Config{JWKSFile: path}), stub{}, quiet{}, stub{}, always).Handler()
	secret := newServer(t, identified(api.Config{JWTSecret: jwtSecret}), stub{}, quiet{}, stub{}, always).Handler()
	der, err := x509.MarshalPKIXPublicKey(&signing.PublicKey)
	require.NoError(t, err)
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	jwks, err := os.ReadFile(path)
	require.NoError(t, err)
	rs := func(changes map[string]any) string { return signed(t, jose.RS256, signing, "one", claims(changes)) }
	hs := func(changes map[string]any) string {
		return signed(t, jose.HS256, []byte(jwtSecret), "", claims(changes))
	}

	const path1 = "/v1/orders/a?unknown=1" // a 400 once it is let in
	for name, good := range map[string]string{
		"RS256": rs(nil), "without a kid": signed(t, jose.RS256, signing, "", claims(nil)), "ES256": signed(t, jose.ES256, curve, "two", claims(nil)),
		"one audience": rs(map[string]any{"aud": "shop"}), "a clock that is ahead": rs(map[string]any{"nbf": time.Now().Add(5 * time.Second).Unix()}),
	} {
		require.Equal(t, http.StatusBadRequest, do(t, public, "GET", path1, "", good).status, name)
	}
	require.Equal(t, http.StatusBadRequest, do(t, secret, "GET", path1, "", hs(nil)).status)

	minute := func(n int) int64 { return time.Now().Add(time.Duration(n) * time.Minute).Unix() }
	for name, changes := range map[string]map[string]any{
		"it has expired":                {"exp": minute(-1)},
		"it has no expiry":              {"exp": nil},
		"it is not valid yet":           {"nbf": minute(1)},
		"it is not valid yet, by iat":   {"iat": minute(1)},
		"its issuer is another one":     {"iss": "https://evil.example"},
		"its issuer is another one, no": {"iss": nil},
		"it is for another audience":    {"aud": "other"},
		"it is for another audience, 0": {"aud": nil},
		"it is for another audience, l": {"aud": []string{}},
		"its subject must":              {"sub": nil},
		"its subject must, empty":       {"sub": ""},
		"its subject must, blanks":      {"sub": "ann "},
		"its subject must, long":        {"sub": strings.Repeat("a", 65)},
		"its signature, number":         {"sub": 7}, // claims that cannot be read
		"its signature, text":           {"exp": "tomorrow"},
	} {
		want, _, _ := strings.Cut(name, ",")
		for _, a := range []answer{do(t, public, "GET", path1, "", rs(changes)), do(t, secret, "GET", path1, "", hs(changes))} {
			require.Equal(t, http.StatusUnauthorized, a.status, name)
			kind, _ := a.problem(t)
			require.Equal(t, "identity-refused", kind)
			require.Contains(t, string(a.body), want)
		}
	}
	good := rs(nil)
	for name, header := range map[string]string{
		"no algorithm":                    unsigned(t, `{"alg":"none"}`, ""),
		"no algorithm, by another name":   unsigned(t, `{"alg":"nOnE","kid":"one"}`, "AA"),
		"another algorithm of the key":    signed(t, jose.RS512, signing, "one", claims(nil)),
		"PSS":                             signed(t, jose.PS256, signing, "one", claims(nil)),
		"another key":                     signed(t, jose.RS256, other, "one", claims(nil)),
		"a key for something else":        signed(t, jose.RS256, other, "sealing", claims(nil)),
		"another kid":                     signed(t, jose.RS256, signing, "two", claims(nil)),
		"the public key as a secret":      signed(t, jose.HS256, asPEM, "one", claims(nil)),
		"its DER as a secret":             signed(t, jose.HS256, der, "one", claims(nil)),
		"the file as a secret":            signed(t, jose.HS256, jwks, "one", claims(nil)),
		"changed claims":                  good[:len(good)/2] + string(good[len(good)/2]^1) + good[len(good)/2+1:],
		"no signature":                    good[:strings.LastIndex(good, ".")+1],
		"an algorithm that must be known": unsigned(t, `{"alg":"RS256","kid":"one","crit":["x"],"x":1}`, "AA"),
		"nothing":                         "Authorization: Bearer ..",
		"no base64":                       "Authorization: Bearer !.!.!",
	} {
		a := do(t, public, "GET", path1, "", header)
		require.Equal(t, http.StatusUnauthorized, a.status, name)
		kind, _ := a.problem(t)
		require.Equal(t, "identity-refused", kind, name)
		require.Equal(t, http.StatusUnauthorized, do(t, secret, "GET", path1, "", header).status, name)
	}
	for name, header := range map[string]string{
		"a key of somebody else's, for a secret": rs(nil),
		"another secret":                         signed(t, jose.HS256, []byte(strings.ToUpper(jwtSecret)), "", claims(nil)),
		"another hash":                           signed(t, jose.HS512, []byte(jwtSecret+jwtSecret), "", claims(nil)),
	} {
		require.Equal(t, http.StatusUnauthorized, do(t, secret, "GET", path1, "", header).status, name)
	}
	plain := newServer(t, guarded(), stub{}, quiet{}, stub{}, always).Handler()
	require.Equal(t, http.StatusUnauthorized, do(t, plain, "GET", path1, "", rs(nil)).status, "where none are taken")
}

func TestIdentity_KeysAreExchangedWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	first, second := rsaKey(t, 2048), rsaKey(t, 2048)
	path := filepath.Join(t.TempDir(), "keys.json")
	key := func(k *rsa.PrivateKey, kid string) jose.JSONWebKey {
		return jose.JSONWebKey{Key: &k.PublicKey, KeyID: kid}
	}
	writeKeys(t, path, key(first, "1"))
	log := make(lines, 10)
	s := newServer(t, identified(api.Config{JWKSFile: path, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))}),
		stub{}, quiet{}, stub{}, always)
	status := func(k *rsa.PrivateKey, kid string) int {
		return do(t, s.Handler(), "GET", "/v1/orders?unknown=1", "", signed(t, jose.RS256, k, kid, claims(nil))).status
	}
	require.Equal(t, http.StatusBadRequest, status(first, "1"))
	require.Equal(t, http.StatusUnauthorized, status(second, "2"))
	writeKeys(t, path, key(second, "2"))
	require.Eventually(t, func() bool { return status(second, "2") == http.StatusBadRequest }, 10*time.Second, 50*time.Millisecond)
	require.Equal(t, http.StatusUnauthorized, status(first, "1"), "a key that was taken back")

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.Eventually(t, func() bool {
		require.Equal(t, http.StatusBadRequest, status(second, "2"))
		return len(log) > 0
	}, 10*time.Second, 50*time.Millisecond)
	require.Contains(t, <-log, "the keys of signed identities cannot be read, those read before stay")

	require.NoError(t, os.WriteFile(path, []byte(`{"keys":[]}`), 0o600))
	require.Eventually(t, func() bool { return status(second, "2") == http.StatusUnauthorized }, 10*time.Second, 50*time.Millisecond, "all are taken back")
}

func TestIdentity_SettingsThatProtectNothingAreRefused(t *testing.T) {
	t.Parallel()
	file := func(keys ...jose.JSONWebKey) string {
		path := filepath.Join(t.TempDir(), "keys.json")
		writeKeys(t, path, keys...)
		return path
	}
	key, weak := rsaKey(t, 2048), rsaKey(t, 1024)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("[]"), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte(`{"keys":[]}`), 0o600))
	for problem, cfg := range map[string]api.Config{
		"signed identities need an APIToken": {JWTSecret: jwtSecret},
		"want one of them":                   {APIToken: "a", JWTSecret: jwtSecret, JWKSFile: file()},
		"shorter than 32 bytes":              {APIToken: "a", JWTSecret: jwtSecret[1:]},
		"no such file":                       {APIToken: "a", JWKSFile: "/does/not/exist"},
		"the file is not a JWK Set":          {APIToken: "a", JWKSFile: broken},
		"has no RSA key":                     {APIToken: "a", JWKSFile: file()},
		"the file has no key":                {APIToken: "a", JWKSFile: empty},
		"no RSA key of 2048 bits":            {APIToken: "a", JWKSFile: file(jose.JSONWebKey{Key: &weak.PublicKey}, jose.JSONWebKey{Key: &p384.PublicKey})},
		"key 0 is a private or secret key":   {APIToken: "a", JWKSFile: file(jose.JSONWebKey{Key: key})},
		"is a private or secret key":         {APIToken: "a", JWKSFile: file(jose.JSONWebKey{Key: []byte(jwtSecret)})},
	} {
		var log bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		_, err := api.New(cfg, stub{}, quiet{}, stub{}, always)
		require.ErrorContains(t, err, problem)
		require.NotContains(t, err.Error()+log.String(), jwtSecret)
	}
}
