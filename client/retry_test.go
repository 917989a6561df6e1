package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/client"
)

// wire answers requests without a network. It is asked for one answer after the other, and the last one for ever.
type wire struct {
	answers []answer
	asked   []time.Time
}

// answer is what comes back: a status, or an error, or with neither nothing until nobody waits any more.
type answer struct {
	status     int
	body       string
	retryAfter string
	err        error
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	next := w.answers[min(len(w.asked), len(w.answers)-1)]
	w.asked = append(w.asked, time.Now())
	switch {
	case next.err != nil:
		return nil, next.err
	case next.status == 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	header := http.Header{"Retry-After": {next.retryAfter}}
	return &http.Response{StatusCode: next.status, Header: header, Body: io.NopCloser(strings.NewReader(next.body))}, nil
}

func over(t *testing.T, cfg client.Config, answers ...answer) (*client.Client, *wire) {
	t.Helper()
	w := &wire{answers: answers}
	cfg.HTTP = &http.Client{Transport: w}
	c, err := client.New("http://duebox", cfg)
	require.NoError(t, err)
	return c, w
}

var cut, silent = answer{err: io.ErrUnexpectedEOF}, answer{}

const (
	busy    = `{"type":"urn:duebox:problem:unavailable","title":"x","status":503,"detail":"later"}`
	refused = `{"type":"urn:duebox:problem:no-such-order","title":"x","status":404,"detail":"none"}`
	placed  = `{"no":"7","status":"pending"}`
)

func TestRetry_RepeatsWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, w := over(t, client.Config{}, cut, silent, answer{503, busy, "3", nil}, answer{502, "<html>", "", nil}, answer{201, placed, "", nil})
		began := time.Now()
		o, err := c.PlaceOrder(t.Context(), client.Draft{}, "key")
		require.NoError(t, err)
		require.Equal(t, "7", o.No)
		require.Len(t, w.asked, 5)
		require.Less(t, w.asked[1].Sub(began), 100*time.Millisecond)
		require.GreaterOrEqual(t, w.asked[2].Sub(w.asked[1]), 10*time.Second, "a try has a deadline")
		require.Less(t, w.asked[2].Sub(w.asked[1]), 11*time.Second)
		require.Equal(t, 3*time.Second, w.asked[3].Sub(w.asked[2]), "Retry-After")
	})
}

func TestRetry_SendsOnceWhatMustNotBeRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, w := over(t, client.Config{}, cut)
		_, err := c.PlaceOrder(t.Context(), client.Draft{}, "")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Len(t, w.asked, 1)
		_, _, err = c.PutMessage(t.Context(), "t", "k", client.NewMessage{IfNone: true})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Len(t, w.asked, 2)
		require.Error(t, c.Readiness(t.Context()))
		require.Len(t, w.asked, 3)

		c, w = over(t, client.Config{}, answer{404, refused, "", nil})
		_, err = c.GetOrder(t.Context(), "7")
		require.Equal(t, client.NoSuchOrder, client.TypeOf(err))
		require.Len(t, w.asked, 1, "a refusal is an answer")

		c, w = over(t, client.Config{}, answer{200, `{"no":7}`, "", nil})
		_, err = c.GetOrder(t.Context(), "7")
		require.ErrorContains(t, err, "the answer is not what was asked for")
		require.Len(t, w.asked, 1)
	})
}

func TestRetry_EndsWithPatienceAndWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, w := over(t, client.Config{Patience: 20 * time.Second}, answer{503, busy, "", nil})
		began := time.Now()
		_, err := c.GetOrder(t.Context(), "7")
		require.Equal(t, client.Unavailable, client.TypeOf(err))
		took := time.Since(began)
		require.LessOrEqual(t, took, 20*time.Second)
		require.Greater(t, took, 17*time.Second)
		require.InDelta(t, 17, len(w.asked), 5, "pauses grow to two seconds")

		c, w = over(t, client.Config{Patience: -1}, answer{503, busy, "", nil})
		_, err = c.GetOrder(t.Context(), "7")
		require.Equal(t, client.Unavailable, client.TypeOf(err))
		require.Len(t, w.asked, 1)

		c, _ = over(t, client.Config{}, answer{503, busy, "29", nil})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = c.GetOrder(ctx, "7")
		require.Equal(t, client.Unavailable, client.TypeOf(err))
		require.Equal(t, time.Second, time.Since(began))

		c, w = over(t, client.Config{}, silent)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.GetOrder(ctx, "7")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, w.asked, 1)
	})
}

func TestProblem_OfAnotherServerIsShownInShort(t *testing.T) {
	t.Parallel()
	c, _ := over(t, client.Config{Patience: -1}, answer{502, strings.Repeat("<html>", 100), "", nil})
	_, err := c.GetOrder(t.Context(), "7")
	require.ErrorContains(t, err, "client: GET /v1/orders/7: 502 Bad Gateway: <html>")
	require.Less(t, len(err.Error()), 400)
	require.Empty(t, client.TypeOf(err))
	require.Empty(t, client.TypeOf(errors.New("x")))
}

func TestNew_RefusesWhatIsNoServer(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://a", "http://", "http://a?b=c", "http://user:secret@a"} {
		_, err := client.New(bad, client.Config{})
		require.Error(t, err, bad)
	}
	_, err := client.New("http://a", client.Config{Timeout: -1})
	require.Error(t, err)
}
