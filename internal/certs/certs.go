// Package certs makes TLS configurations of files that are exchanged while a process runs: each new connection is made by what they say
// then. Every error names the setting that it is about.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/duebox/duebox/internal/watched"
)

// File is a file in PEM and the setting that names it. Without a path there is none.
type File struct{ Setting, Path string }

// Server is the configuration of a listener that shows the certificate. With clientCA those of clients are verified, and one that does
// not hold ends the connection; who shows none is let in, and IsKnown tells.
//
// What cannot be read later is told to told, and the certificate before it stays.
func Server(certificate, key, clientCA File, told func(error)) (*tls.Config, error) {
	files := present(certificate, key, clientCA)
	now, err := watched.Open(func(contents [][]byte) (*tls.Config, error) {
		pair, err := pairOf(certificate, key, contents)
		if err != nil {
			return nil, err
		}
		c := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
		if len(contents) > 2 {
			c.ClientAuth = tls.VerifyClientCertIfGiven
			c.ClientCAs, err = poolOf(clientCA, contents[2])
		}
		return c, err
	}, func(err error) { told(named(files, err)) }, paths(files)...)
	if err != nil {
		return nil, named(files, err)
	}
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.Get(), nil },
		NextProtos:         []string{"h2", "http/1.1"},
		MinVersion:         tls.VersionTLS12,
	}, nil
}

// IsKnown reports whether a client has shown a certificate that holds.
func IsKnown(state *tls.ConnectionState) bool { return state != nil && len(state.VerifiedChains) > 0 }

// trust is what a client believes and shows.
type trust struct {
	roots *x509.CertPool // nil: the system's
	pair  *tls.Certificate
}

// Client is the configuration of connections to host, whose certificate must be signed by ca, or by one that the system trusts if there is
// none. With a certificate of its own the client shows that.
//
// What cannot be read later is told to told, and what was read before stays.
func Client(host string, ca, certificate, key File, told func(error)) (*tls.Config, error) {
	if host == "" {
		return nil, fmt.Errorf("%s: the server is not named by a host", present(ca, certificate, key)[0].Setting)
	}
	files := present(ca, certificate, key)
	now, err := watched.Open(func(contents [][]byte) (t trust, err error) {
		if ca.Path != "" {
			if t.roots, err = poolOf(ca, contents[0]); err != nil {
				return t, err
			}
			contents = contents[1:]
		}
		if certificate.Path != "" {
			pair, err := pairOf(certificate, key, contents)
			t.pair = &pair
			return t, err
		}
		return t, nil
	}, func(err error) { told(named(files, err)) }, paths(files)...)
	if err != nil {
		return nil, named(files, err)
	}
	return &tls.Config{
		ServerName: host,
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair := now.Get().pair; pair != nil {
				return pair, nil
			}
			return new(tls.Certificate), nil // none
		},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by roots that change
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(host, state.PeerCertificates, now.Get().roots, ca)
		},
	}, nil
}

// verify does what crypto/tls does by itself for roots that do not change.
func verify(host string, shown []*x509.Certificate, roots *x509.CertPool, ca File) error {
	if len(shown) == 0 {
		return errors.New("the server shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: time.Now()})
	if err != nil {
		return fmt.Errorf("the certificate of %s does not hold (%s): %w", host, ca.Setting, err)
	}
	return nil
}

func pairOf(certificate, key File, contents [][]byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return pair, fmt.Errorf("%s, %s: %w", certificate.Setting, key.Setting, err)
	}
	if over := pair.Leaf.NotAfter; time.Now().After(over) {
		return pair, fmt.Errorf("%s: the certificate has been over since %v", certificate.Setting, over.UTC().Format(time.RFC3339))
	}
	return pair, nil
}

func poolOf(ca File, content []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: the file holds no certificate in PEM", ca.Setting)
	}
	return pool, nil
}

// present are the files that there are, in their order.
func present(files ...File) (found []File) {
	for _, f := range files {
		if f.Path != "" {
			found = append(found, f)
		}
	}
	return found
}

func paths(files []File) (all []string) {
	for _, f := range files {
		all = append(all, f.Path)
	}
	return all
}

// named says which setting an error of a file is about. Those of contents say so themselves.
func named(files []File, err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		for _, f := range files {
			if f.Path == p.Path {
				return fmt.Errorf("%s: %w", f.Setting, err)
			}
		}
	}
	return err
}
