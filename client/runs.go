package client

import (
	"context"
	"net/http"
	"time"
)

// Run is a run of the reconciler. Report is nil until there is one.
type Run struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`  // pass, audit, rearm or purge
	State       string    `json:"state"` // requested, running, completed or incomplete
	DryRun      bool      `json:"dry_run"`
	Owner       string    `json:"owner"`
	RequestedAt time.Time `json:"requested_at"`
	StartedAt   time.Time `json:"started_at"`
	FinishedAt  time.Time `json:"finished_at"`
	Error       string    `json:"error"`
	Report      *Report   `json:"report"`
}

// Report is what a run has looked at, found and mended.
type Report struct {
	Run      string             `json:"run"`
	Skipped  bool               `json:"skipped"`
	Audit    bool               `json:"audit"`
	DryRun   bool               `json:"dry_run"`
	Looked   map[string]int     `json:"looked"`
	Findings map[string]Finding `json:"findings"`
	Purged   int                `json:"purged"`
	Left     []string           `json:"left"`
	Errors   []string           `json:"errors"`
	Seconds  float64            `json:"seconds"`
}

// Finding is what was found of one kind; IDs are the first hundred.
type Finding struct {
	Found  int      `json:"found"`
	Mended int      `json:"mended"`
	IDs    []string `json:"ids"`
}

// Scope is what a run shall do.
type Scope struct {
	Audit  bool `json:"audit"`
	DryRun bool `json:"dry_run"`
}

// RequestRun asks for a run of the reconciler and returns its id, with which GetRun finds it. While the same is waiting already, that
// one's id is the answer.
func (c *Client) RequestRun(ctx context.Context, s Scope) (id string, err error) {
	var answer struct {
		ID string `json:"id"`
	}
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/admin/reconcile", body: s, into: &answer})
	return answer.ID, err
}

// GetRun reads a run.
func (c *Client) GetRun(ctx context.Context, id string) (r Run, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: path("v1", "admin", "reconcile", id), into: &r})
	return r, err
}

// Health says whether the server's process runs. It is asked once.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/healthz", once: true})
	return err
}

// Readiness says whether requests should be sent to the server. It is asked once.
func (c *Client) Readiness(ctx context.Context) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/readyz", once: true})
	return err
}
