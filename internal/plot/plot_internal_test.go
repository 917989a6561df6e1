package plot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrap_BreaksAtSpaces(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"aa bb", "cc", "dddddddd", "e"}, wrap("aa bb cc dddddddd e", 5))
	require.Equal(t, []string{""}, wrap("", 5))
}
