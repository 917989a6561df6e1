package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config tunes a Client. The zero value is usable where the server asks for no token.
type Config struct {
	// APIToken is the server's API_TOKEN, and AdminToken its ADMIN_TOKEN, which the methods for operators send.
	APIToken, AdminToken string
	// Actor is who the server's records name for what the methods for operators do: 1 to 64 printable characters. Default: the server's.
	Actor string
	// Timeout bounds one try, its answer included. Default 10 s.
	Timeout time.Duration
	// Patience is how long a call goes on trying: no try is begun after that. Default 30 s; below zero: one try.
	Patience time.Duration
	// HTTP sends the requests. Default: one of its own that keeps up to 64 idle connections and follows no redirect.
	HTTP *http.Client
}

// Client is safe for concurrent use.
type Client struct {
	base string
	cfg  Config
}

// maxAnswer is the most that is read of an answer.
const maxAnswer = 32 << 20

// New returns a client of the server at a URL such as http://127.0.0.1:8080. It does no I/O.
func New(server string, cfg Config) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("client: %q is not a URL such as http://127.0.0.1:8080", server)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("client: Timeout must not be below zero")
	}
	if cfg.HTTP == nil {
		const idle = 64
		cfg.HTTP = &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: idle, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &Client{base: strings.TrimSuffix(server, "/"), cfg: cfg}, nil
}

// Close closes idle connections. The client can be used on.
func (c *Client) Close() { c.cfg.HTTP.CloseIdleConnections() }

// call is a request, and what becomes of it.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any  // nil: none
	once         bool // not to be repeated
	into         any  // nil: the answer's body is of no interest
}

// do makes the request, again where that may be, and returns the status of its success.
func (c *Client) do(ctx context.Context, call call) (status int, err error) {
	var body []byte
	if call.body != nil {
		if body, err = encode(call.body); err != nil {
			return 0, fmt.Errorf("client: %s %s: %w", call.method, call.path, err)
		}
	}
	for tries := newTries(c.cfg.Patience); ; {
		status, err = c.try(ctx, call, body)
		if err == nil {
			return status, nil
		}
		err = fmt.Errorf("client: %s %s: %w", call.method, call.path, err)
		if call.once || ctx.Err() != nil || !passes(err) || !tries.wait(ctx, err) {
			return 0, err
		}
	}
}

// try makes the request once.
func (c *Client) try(ctx context.Context, call call, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	address := c.base + call.path
	if len(call.query) > 0 {
		address += "?" + call.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, call.method, address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	c.dress(r, call, body != nil)
	resp, err := c.cfg.HTTP.Do(r)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // we say the method and the path ourselves
		}
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the answer: %w", err)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return 0, problemOf(resp, answer)
	case call.into == nil:
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(answer, call.into); err != nil {
		return 0, &answerError{err}
	}
	return resp.StatusCode, nil
}

// dress adds the headers.
func (c *Client) dress(r *http.Request, call call, hasBody bool) {
	maps.Copy(r.Header, call.header)
	if hasBody {
		r.Header.Set("Content-Type", "application/json")
	}
	token := c.cfg.APIToken
	if strings.HasPrefix(call.path, "/v1/admin/") {
		token = c.cfg.AdminToken
		if c.cfg.Actor != "" {
			r.Header.Set("Duebox-Actor", c.cfg.Actor)
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// encode writes JSON without escapes for HTML, so that a payload travels as it is written but for blanks.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// path joins segments, each of them percent-encoded.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// queryOf keeps what is not empty.
func queryOf(parameters map[string]string) url.Values {
	q := url.Values{}
	for name, value := range parameters {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}
