package loopback_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/loopback"
)

func TestIs(t *testing.T) {
	t.Parallel()
	for host, is := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]": true, "[::1]:8080": true, "::1": true,
		"": false, ":8080": false, "example.org": false, "localhost.example.org": false, "127.0.0.1.example.org:80": false,
		"10.0.0.1": false, "0.0.0.0": false, "[::]:80": false, "[fe80::1]": false, "2130706433": false, "127.1": false,
	} {
		require.Equal(t, is, loopback.Is(host), "%q", host)
	}
}
