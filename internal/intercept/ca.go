package intercept

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// Subject is the name of every sandbox's CA, by which the certificate of an
// earlier session is found among others.
const Subject = "Glovebox sandbox CA"

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 90 * 24 * time.Hour
	// clockSkew is how far a guest's clock may be behind.
	clockSkew = 24 * time.Hour
	maxLeaves = 1024 // minted anew beyond
)

// CA is the authority of one sandbox's machine. Its key never enters the
// machine, and ends with it. Safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	leaf *ecdsa.PrivateKey // of all leaves

	mu     sync.Mutex // guards what follows
	leaves map[string]*tls.Certificate
}

// NewCA makes an authority.
func NewCA() (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Glovebox"}, CommonName: Subject},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(caLifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	return withLeafKey(cert, key)
}

// PEM is the certificate, for the guest to trust.
func (ca *CA) PEM() []byte { return ca.pem }

// certificate is the one for name, minted at the first call.
func (ca *CA) certificate(name string) (*tls.Certificate, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	now := time.Now()
	if c := ca.leaves[name]; c != nil && now.Add(clockSkew).Before(c.Leaf.NotAfter) {
		return c, nil
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("mint certificate of %s: %w", name, err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Glovebox"}}, DNSNames: []string{name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, &ca.leaf.PublicKey, ca.key)
	if err != nil {
		return nil, fmt.Errorf("mint certificate of %s: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("mint certificate of %s: %w", name, err)
	}
	if len(ca.leaves) >= maxLeaves {
		clear(ca.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ca.leaf, Leaf: leaf}
	ca.leaves[name] = c
	return c, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// storedCA is what Marshal writes.
type storedCA struct {
	Cert []byte `json:"cert"` // DER
	Key  []byte `json:"key"`  // PKCS 8
}

// Marshal returns the authority with its key, a secret, for the server that
// takes the sandbox over.
func (ca *CA) Marshal() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		return nil, fmt.Errorf("store CA: %w", err)
	}
	return json.Marshal(storedCA{ca.cert.Raw, key})
}

// ParseCA reads what Marshal returned.
func ParseCA(b []byte) (*CA, error) {
	var st storedCA
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("read stored CA: %w", err)
	}
	cert, err := x509.ParseCertificate(st.Cert)
	if err != nil {
		return nil, fmt.Errorf("read stored CA: %w", err)
	}
	k, err := x509.ParsePKCS8PrivateKey(st.Key)
	if err != nil {
		return nil, fmt.Errorf("read the key of a stored CA: %w", err)
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("read stored CA: its key is not its certificate's")
	}
	return withLeafKey(cert, key)
}

func withLeafKey(cert *x509.Certificate, key *ecdsa.PrivateKey) (*CA, error) {
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	return &CA{
		cert: cert, key: key, leaf: leaf, leaves: map[string]*tls.Certificate{},
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
	}, nil
}
