//go:build linux

package outside

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs the certificates of the outside's servers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	der, err := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "outside"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

func (a *authority) sign(t *x509.Certificate) ([]byte, error) {
	parent := a.cert
	if parent == nil {
		parent = t
	}
	t.SerialNumber, t.NotBefore, t.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	return x509.CreateCertificate(rand.Reader, t, parent, &a.key.PublicKey, a.key)
}

// certificate is one for whatever name the client asks for.
func (a *authority) certificate(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	der, err := a.sign(&x509.Certificate{DNSNames: []string{h.ServerName}})
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}, nil
}

// CAFile holds the certificate of the authority that all of the outside's
// HTTPS servers have theirs from.
func (o *Net) CAFile(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outside.pem")
	if err := os.WriteFile(name, o.Authority(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Authority is the certificate, in PEM, of who signs those of the outside.
func (o *Net) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.ca.cert.Raw})
}
