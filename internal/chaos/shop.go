package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	askLimit  = 5 * time.Second  // one request
	giveUp    = 25 * time.Second // all that are made for one answer
	askAgain  = 300 * time.Millisecond
	idleConns = 64
)

// shop is a client of the API. What got no answer is asked again for a while: the API promises that this is safe.
type shop struct {
	url    string
	client *http.Client
}

func newShop(url string) *shop {
	return &shop{url: url, client: &http.Client{Timeout: askLimit, Transport: &http.Transport{
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: 10 * time.Second,
	}}}
}

func (s *shop) close() { s.client.CloseIdleConnections() }

// answered is the part of the API's answers that matters here.
type answered struct {
	No     string    `json:"no"`
	Status string    `json:"status"`
	Total  int64     `json:"total"`
	DueAt  time.Time `json:"due_at"`
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Price    int64  `json:"price"`
}

func (s *shop) stock(ctx context.Context, sku string, units int64) error {
	status, err := s.do(ctx, http.MethodPut, "/v1/products/"+sku, "", map[string]any{"name": "Product " + sku, "stock": units}, nil)
	if err == nil && status != http.StatusOK && status != http.StatusCreated {
		err = fmt.Errorf("stock %s: %d", sku, status)
	}
	return err
}

func (s *shop) place(ctx context.Context, user, kind string, items []item) (status int, a answered, err error) {
	status, err = s.do(ctx, http.MethodPost, "/v1/orders", "place-"+user, map[string]any{"kind": kind, "user": user, "items": items}, &a)
	return status, a, err
}

func (s *shop) pay(ctx context.Context, no, payment string, amount int64) (status int, err error) {
	return s.do(ctx, http.MethodPost, order(no)+"/pay", "", map[string]any{"payment_id": payment, "amount": amount}, nil)
}

func (s *shop) cancel(ctx context.Context, no string) (status int, err error) {
	return s.do(ctx, http.MethodPost, order(no)+"/cancel", "", nil, nil)
}

func (s *shop) reschedule(ctx context.Context, no string, due time.Time) (status int, a answered, err error) {
	status, err = s.do(ctx, http.MethodPatch, order(no)+"/due", "", map[string]any{"due_at": due.UTC().Format(time.RFC3339Nano)}, &a)
	return status, a, err
}

func order(no string) string { return "/v1/orders/" + url.PathEscape(no) }

// do returns the answer's status, which is below 500, and reads the body of those below 300. An error means that it is not
// known what became of the request.
func (s *shop) do(ctx context.Context, method, path, key string, body, into any) (status int, err error) {
	var encoded []byte
	if body != nil {
		if encoded, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	end := time.Now().Add(giveUp)
	for {
		status, err := s.ask(ctx, method, path, key, encoded, into)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return status, err
		}
		if err := pause(ctx, askAgain); err != nil {
			return 0, err
		}
	}
}

func (s *shop) ask(ctx context.Context, method, path, key string, body []byte, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return 0, err
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return 0, fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	case resp.StatusCode >= 300 || into == nil:
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.Unmarshal(answer, into)
}

// pause waits for d, or returns an error when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
