// Package loopback tells this machine from others by the names that requests give it.
//
// A server that asks for no token is for whoever is on its machine. A browser is, too, and shows pages of others: one whose name
// resolves to a loopback address (DNS rebinding) is told apart by the Host of its requests, which is that name.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Is reports whether a Host, with or without a port, is localhost or a loopback address.
func Is(hostPort string) bool {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}
