package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
)

func newHealth() *cobra.Command {
	return &cobra.Command{
		Use:       "health [api|worker]",
		Short:     "Ask the api (or the worker) on this machine whether it lives; exits with 1 if not",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"api", "worker"},
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			address := cfg.HTTPAddr
			if len(args) > 0 && args[0] == "worker" {
				address = cfg.WorkerHTTPAddr
			}
			return fail(wentWrong, askHealth(c, address))
		},
	}
}

func askHealth(c *cobra.Command, address string) error {
	client := &http.Client{Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "http://"+reachable(address)+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return nil
}

// reachable turns an address to listen on into one to connect to.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
