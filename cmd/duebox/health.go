package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/duebox/duebox/config"
)

func newHealth() *cobra.Command {
	return &cobra.Command{
		Use:       "health [api|worker]",
		Short:     "Ask the api (or the worker) on this machine whether it lives; exits with 1 if not",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"api", "worker"},
		RunE: func(c *cobra.Command, args []string) error {
			defaults, err := config.Load(nil)
			if err != nil {
				return fail(cannotBegin, err)
			}
			// Of all settings only this one, unjudged: a probe must not end because of another.
			variable, address := "HTTP_ADDR", defaults.HTTPAddr
			if len(args) > 0 && args[0] == "worker" {
				variable, address = "WORKER_HTTP_ADDR", defaults.WorkerHTTPAddr
			}
			address = cmp.Or(os.Getenv(variable), address)
			if _, _, err := net.SplitHostPort(address); err != nil {
				return fail(cannotBegin, fmt.Errorf("%s: want host:port", variable))
			}
			return fail(wentWrong, askHealth(c, address))
		},
	}
}

func askHealth(c *cobra.Command, address string) error {
	scheme, transport := "http", &http.Transport{}
	if os.Getenv("TLS_CERT_FILE") != "" {
		// It asks the process on this machine whether it lives, and sends nothing.
		scheme, transport.TLSClientConfig = "https", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // see above
	}
	client := &http.Client{Timeout: 3 * time.Second, Transport: transport}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, scheme+"://"+reachable(address)+"/healthz", nil) //nolint:gosec // the operator names the address
	if err != nil {
		return err
	}
	resp, err := client.Do(req) //nolint:gosec // the same
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
