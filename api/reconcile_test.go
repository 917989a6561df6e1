package api_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/outbox"
)

// What was asked for over HTTP is what the reconciler of a worker runs, and its report comes back over HTTP.
func TestReconcile_ARequestedRunIsExecutedAndReported(t *testing.T) {
	t.Parallel()
	s := newShop(t, api.Config{})
	s.stock("cup", "10")
	no := s.place()
	_, err := s.db.ExecContext(t.Context(), "DELETE FROM outbox_messages")
	require.NoError(t, err)
	a := s.do("POST", "/v1/admin/reconcile", `{"audit":true}`)
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	require.Equal(t, map[string]any{"id": "1"}, a.json(t))
	require.Equal(t, "/v1/admin/reconcile/1", a.header.Get("Location"))
	run := s.do("GET", a.header.Get("Location"), "").json(t)
	require.Equal(t, "requested", run["state"])
	for _, absent := range []string{"owner", "started_at", "finished_at", "error", "report"} {
		require.Contains(t, run, absent)
		require.Nil(t, run[absent], absent)
	}

	rec, err := outbox.NewReconciler(s.store, outbox.ReconcileConfig{Owner: "worker-1", Checks: append(s.orders.Checks(), outbox.Check{
		Name: "broken", Run: func(context.Context, *outbox.Pass) error { return errors.New("no more paper") },
	})})
	require.NoError(t, err)
	_, err = rec.RunRequested(t.Context())
	require.Error(t, err)
	run = s.do("GET", "/v1/admin/reconcile/1", "").json(t)
	require.Equal(t, "audit", run["kind"])
	require.Equal(t, "incomplete", run["state"])
	require.Equal(t, "worker-1", run["owner"])
	require.Contains(t, run["error"], "no more paper")
	require.IsType(t, "", run["started_at"])
	require.IsType(t, "", run["finished_at"])
	report, _ := run["report"].(map[string]any)
	require.Equal(t, "1", report["run"])
	require.Equal(t, map[string]any{
		"order_without_message": map[string]any{"found": 1.0, "mended": 1.0, "ids": []any{no}},
	}, report["findings"])
	require.InDelta(t, 1, report["looked"].(map[string]any)["orders"], 0) //nolint:forcetypeassert // the test fails then, too

	a = s.do("POST", "/v1/admin/reconcile", `{"dry_run":true}`)
	require.Equal(t, map[string]any{"id": "2"}, a.json(t))
	run = s.do("GET", "/v1/admin/reconcile/2", "").json(t)
	require.Equal(t, "pass", run["kind"])
	require.Equal(t, true, run["dry_run"])
}
