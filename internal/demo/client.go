package demo

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

// shop is a client of the API. Requests that got no answer are made again: the API promises that this is safe.
type shop struct {
	url    string
	client *http.Client
	slots  chan struct{} // bounds the requests that are under way
}

const (
	askLimit   = 10 * time.Second // one request
	retryLimit = 30 * time.Second // all that are made for one answer
	retryPause = 200 * time.Millisecond
	most       = 64 // requests at a time
)

func newShop(apiURL string) *shop {
	return &shop{
		url:   apiURL,
		slots: make(chan struct{}, most),
		client: &http.Client{Timeout: askLimit, Transport: &http.Transport{
			MaxIdleConnsPerHost: most, IdleConnTimeout: time.Minute,
		}},
	}
}

func (s *shop) close() { s.client.CloseIdleConnections() }

// stock makes units of a product available.
func (s *shop) stock(ctx context.Context, sku string, units int64) error {
	return s.do(ctx, http.MethodPut, "/v1/products/"+url.PathEscape(sku), "", map[string]any{"name": "Product " + sku, "stock": units}, nil)
}

// place places an order and returns its number and total.
func (s *shop) place(ctx context.Context, p planned) (no string, total int64, err error) {
	var placed struct {
		No    string `json:"no"`
		Total int64  `json:"total"`
	}
	err = s.do(ctx, http.MethodPost, "/v1/orders", p.name, map[string]any{"kind": p.kind, "user": p.user, "items": p.items}, &placed)
	if err == nil && placed.No == "" {
		err = fmt.Errorf("place order %s: the answer has no number", p.name)
	}
	return placed.No, placed.Total, err
}

func paymentID(p planned) string { return "pay-" + p.name }

func (s *shop) pay(ctx context.Context, no string, p planned, total int64) error {
	return s.do(ctx, http.MethodPost, "/v1/orders/"+url.PathEscape(no)+"/pay", "", map[string]any{"payment_id": paymentID(p), "amount": total}, nil)
}

// status is pending, paid or closed.
func (s *shop) status(ctx context.Context, no string) (string, error) {
	var order struct {
		Status string `json:"status"`
	}
	err := s.do(ctx, http.MethodGet, "/v1/orders/"+url.PathEscape(no), "", nil, &order)
	return order.Status, err
}

func (s *shop) do(ctx context.Context, method, path, key string, body, into any) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return err
		}
	}
	end := time.Now().Add(retryLimit)
	for {
		again, err := s.ask(ctx, method, path, key, encoded, into)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s %s: %w", method, path, err)
		if !again || time.Now().After(end) {
			return err
		}
		if pause(ctx, retryPause) != nil {
			return err
		}
	}
}

// ask makes one request, and says whether it may be made again.
func (s *shop) ask(ctx context.Context, method, path, key string, body []byte, into any) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return ctx.Err() == nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return true, err
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return true, fmt.Errorf("%s: %.300s", resp.Status, answer)
	case resp.StatusCode >= 300:
		return false, fmt.Errorf("%s: %.300s", resp.Status, answer)
	case into == nil:
		return false, nil
	}
	return false, json.Unmarshal(answer, into)
}

// get reads JSON, if into is not nil.
func get(ctx context.Context, client *http.Client, address string, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return resp.StatusCode, err
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
