package devtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
)

// Address is host and port for a program that a test starts. Nobody else gets it until the test ends, also while nothing listens there.
func Address(tb testing.TB) string {
	tb.Helper()
	p, err := devenv.TakePorts(tb.Context(), 1)
	require.NoError(tb, err)
	tb.Cleanup(p.Release)
	return p.Address(0)
}
