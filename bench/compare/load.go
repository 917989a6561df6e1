package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// kinds are those of orders, with their shares.
func kinds() map[string]float64 { return map[string]float64{"flash": .2, "normal": .6, "presale": .2} }

// usualTimeouts stand for 10 min, 30 min and a day.
func usualTimeouts(fast bool) map[string]time.Duration {
	if fast {
		return map[string]time.Duration{"flash": 4 * time.Second, "normal": 8 * time.Second, "presale": 16 * time.Second}
	}
	return map[string]time.Duration{"flash": 10 * time.Second, "normal": 30 * time.Second, "presale": 2 * time.Minute}
}

// quietTimeouts are those of a contender alone.
func quietTimeouts(fast bool) map[string]time.Duration {
	if fast {
		return map[string]time.Duration{"flash": 2 * time.Second, "normal": 4 * time.Second, "presale": 6 * time.Second}
	}
	return map[string]time.Duration{"flash": 5 * time.Second, "normal": 10 * time.Second, "presale": 20 * time.Second}
}

// paidWithin are quantiles of payment delays, in parts of the time that the order's kind may stay unpaid: of 8,135 orders of a marketplace 9.8 % were paid
// within 10 min, 34.6 % within 15, 56.1 % within 30, 61.7 % within an hour and 80.2 % within a day, where 30 min is the limit.
func paidWithin() [][2]float64 {
	return [][2]float64{{0, 0}, {.098, 10. / 30}, {.346, 15. / 30}, {.561, 1}, {.617, 2}, {.802, 48}}
}

// payAfter is the payment delay at u in [0, 1); false: it is never paid, as far as anybody waits.
func payAfter(u float64, timeout time.Duration) (time.Duration, bool) {
	points := paidWithin()
	for i := 1; i < len(points); i++ {
		if low, high := points[i-1], points[i]; u < high[0] {
			part := low[1] + (high[1]-low[1])*(u-low[0])/(high[0]-low[0])
			return time.Duration(part * float64(timeout)), true
		}
	}
	return 0, false
}

// sale is an order and when, after the phase has begun, it is placed and paid.
type sale struct {
	order

	at     time.Duration
	pay    time.Duration
	isPaid bool
	// whenDue: it is paid so long after it is due, whatever pay says.
	whenDue bool
	lag     time.Duration
}

// plan draws the sales of a phase, the same for all contenders.
func plan(r *rand.Rand, phase string, n int, window time.Duration, timeouts map[string]time.Duration, longestPay time.Duration) []sale {
	sales := make([]sale, n)
	for i := range sales {
		kind, u := "normal", r.Float64()
		switch {
		case u < kinds()["flash"]:
			kind = "flash"
		case u < kinds()["flash"]+kinds()["presale"]:
			kind = "presale"
		}
		s := sale{
			order: order{No: fmt.Sprintf("%s-%05d", phase, i), Phase: phase, Kind: kind, SKU: r.IntN(products), Quantity: 1 + r.IntN(3), Timeout: timeouts[kind]},
			at:    window * time.Duration(i) / time.Duration(n),
		}
		if after, ever := payAfter(r.Float64(), s.Timeout); ever && after < longestPay {
			s.pay, s.isPaid = s.at+after, true
		}
		sales[i] = s
	}
	return sales
}

// client sends orders to a team, as a gateway does that does not give up for a minute.
type client struct {
	team *team
	http *http.Client
}

func newClient(t *team) *client {
	return &client{t, &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxConnsPerHost: 64, MaxIdleConnsPerHost: 64}}}
}

func (c *client) post(ctx context.Context, path string, o order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for {
		err := c.try(ctx, path, text)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s of %s: %w", path, o.No, c.team.name, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (c *client) try(ctx context.Context, path string, text []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.team.address()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", resp.StatusCode, said)
	}
	return nil
}

// sell sends all sales at their times, from begun on.
func (c *client) sell(ctx context.Context, begun time.Time, sales []sale) error {
	var g errgroup.Group
	for _, s := range sales {
		if err := sleepUntil(ctx, begun.Add(s.at)); err != nil {
			return err
		}
		g.Go(func() error {
			asked := time.Now()
			if err := c.post(ctx, "/place", s.order); err != nil || !s.isPaid {
				return err
			}
			pay := begun.Add(s.pay)
			if s.whenDue { // the database has written the due time between question and answer
				pay = asked.Add(time.Since(asked)/2 + s.Timeout + s.lag)
			}
			if err := sleepUntil(ctx, pay); err != nil {
				return err
			}
			return c.post(ctx, "/pay", s.order)
		})
	}
	return g.Wait()
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
