package devtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CA signs certificates for a test. Its own is in File.
type CA struct {
	File string

	tb          testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes a CA that lives as long as the test.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	ca := &CA{tb: tb, key: newKey(tb), File: filepath.Join(tb.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.certificate = template
	template.PublicKey = &ca.key.PublicKey
	der, err := x509.CreateCertificate(rand.Reader, template, template, &ca.key.PublicKey, ca.key)
	require.NoError(tb, err)
	ca.certificate, err = x509.ParseCertificate(der)
	require.NoError(tb, err)
	writePEM(tb, ca.File, "CERTIFICATE", der)
	return ca
}

// Issue writes a certificate for a host, which may be an address, and its key. It is for servers and clients, and good from an hour ago
// until the given time.
func (ca *CA) Issue(host string, until time.Time) (certificate, key string) {
	ca.tb.Helper()
	dir := ca.tb.TempDir()
	certificate, key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	ca.IssueTo(certificate, key, host, until)
	return certificate, key
}

// IssueTo is Issue to files that may be there already.
func (ca *CA) IssueTo(certificate, key, host string, until time.Time) {
	ca.tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	own := newKey(ca.tb)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, &own.PublicKey, ca.key)
	require.NoError(ca.tb, err)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(ca.tb, err)
	writePEM(ca.tb, key, "PRIVATE KEY", private)
	writePEM(ca.tb, certificate, "CERTIFICATE", der)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	return key
}

func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
