package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/duebox/duebox/client"
)

// shop is the API, for as many buyers at a time as it has slots.
type shop struct {
	api   *client.Client
	slots chan struct{}
}

// most requests are under way at a time.
const most = 64

func newShop(apiURL string) (*shop, error) {
	api, err := client.New(apiURL, client.Config{})
	if err != nil {
		return nil, err
	}
	return &shop{api: api, slots: make(chan struct{}, most)}, nil
}

func (s *shop) close() { s.api.Close() }

// stock makes units of a product available.
func (s *shop) stock(ctx context.Context, sku string, units int64) error {
	return s.during(ctx, func() error {
		_, err := s.api.PutProduct(ctx, sku, "Product "+sku, units)
		return err
	})
}

// place places an order and returns its number and total.
func (s *shop) place(ctx context.Context, p planned) (no string, total int64, err error) {
	var placed client.Order
	err = s.during(ctx, func() (err error) {
		placed, err = s.api.PlaceOrder(ctx, client.Draft{Kind: p.kind, User: p.user, Items: p.items}, p.name)
		return err
	})
	if err == nil && placed.No == "" {
		err = fmt.Errorf("place order %s: the answer has no number", p.name)
	}
	return placed.No, placed.Total, err
}

func paymentID(p planned) string { return "pay-" + p.name }

func (s *shop) pay(ctx context.Context, no string, p planned, total int64) error {
	return s.during(ctx, func() error {
		_, err := s.api.PayOrder(ctx, no, paymentID(p), total)
		return err
	})
}

// status is pending, paid or closed.
func (s *shop) status(ctx context.Context, no string) (status string, err error) {
	err = s.during(ctx, func() error {
		o, err := s.api.GetOrder(ctx, no)
		status = o.Status
		return err
	})
	return status, err
}

// during runs ask when there is a slot for it.
func (s *shop) during(ctx context.Context, ask func() error) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return ask()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// retryPause is how long a buyer waits before asking again.
const retryPause = 200 * time.Millisecond

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
