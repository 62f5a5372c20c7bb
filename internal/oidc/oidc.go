// Package oidc signs tokens that tell a third party which sandbox a request
// comes from, and publishes what that party verifies them by, in the form of
// OpenID Connect.
package oidc

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// KeyFile holds the signing key, in a data directory.
const KeyFile = "oidc-key.pem"

const (
	keyBits  = 2048
	lifetime = 5 * time.Minute // of a token
	// skew is how far a verifier's clock may be behind.
	skew = time.Minute
)

// Identity is whom a token speaks of.
type Identity struct {
	Project, SandboxID, SandboxName, SessionID string
}

// Issuer signs. Its key is made when it is first needed. Safe for concurrent
// use.
type Issuer struct {
	url func() string
	key func() (*rsa.PrivateKey, error)
}

// New returns an issuer whose key is in dir; url tells where its documents
// are served.
func New(dir string, url func() string) *Issuer {
	return &Issuer{url: url, key: sync.OnceValues(func() (*rsa.PrivateKey, error) { return loadKey(filepath.Join(dir, KeyFile)) })}
}

// URL names the issuer.
func (i *Issuer) URL() string { return strings.TrimRight(i.url(), "/") }

// loadKey reads the key, or makes it where there is none.
func loadKey(path string) (*rsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of tokens: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("read the key of tokens: %s is no PEM file; remove it to have a new key", path)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the key of tokens in %s: %w", path, err)
	}
	key, ok := k.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the key of tokens: %s holds no RSA key; remove it to have a new key", path)
	}
	return key, nil
}

// makeKey leaves a whole file or none, which only its owner can read.
func makeKey(path string) (_ *rsa.PrivateKey, err error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("make the key of tokens: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make the key of tokens: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+KeyFile+"-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("keep the key of tokens: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the key of tokens: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	err = pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return nil, err
	}
	return key, nil
}

// Token is a JWT (RS256) that tells audience who id is.
func (i *Issuer) Token(id Identity, audience string) (string, error) {
	key, err := i.key()
	if err != nil {
		return "", err
	}
	now := time.Now()
	head := map[string]string{"alg": "RS256", "typ": "JWT", "kid": keyID(key)}
	claims := map[string]any{
		"iss": i.URL(), "aud": audience, "sub": "project:" + id.Project + ":sandbox:" + id.SandboxName,
		"iat": now.Unix(), "nbf": now.Add(-skew).Unix(), "exp": now.Add(lifetime).Unix(),
		// There are no teams here: a project is all there is of one.
		"team_id": id.Project, "project_id": id.Project,
		"sandbox_id": id.SandboxID, "sandbox_name": id.SandboxName, "session_id": id.SessionID,
	}
	text := segment(head) + "." + segment(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

func segment(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// keyID is the key's thumbprint (RFC 7638).
func keyID(key *rsa.PrivateKey) string {
	e, n := numbers(key)
	sum := sha256.Sum256([]byte(`{"e":"` + e + `","kty":"RSA","n":"` + n + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func numbers(key *rsa.PrivateKey) (e, n string) {
	enc := base64.RawURLEncoding.EncodeToString
	return enc(big.NewInt(int64(key.E)).Bytes()), enc(key.N.Bytes())
}

// JWKS is the set of keys that verify tokens (RFC 7517).
func (i *Issuer) JWKS() ([]byte, error) {
	key, err := i.key()
	if err != nil {
		return nil, err
	}
	e, n := numbers(key)
	return json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": keyID(key), "e": e, "n": n,
	}}})
}

// Configuration is the document of OpenID Connect Discovery.
func (i *Issuer) Configuration() ([]byte, error) {
	return json.Marshal(map[string]any{
		"issuer": i.URL(), "jwks_uri": i.URL() + "/.well-known/jwks",
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"claims_supported":                      []string{"iss", "aud", "sub", "iat", "nbf", "exp", "team_id", "project_id", "sandbox_id", "sandbox_name", "session_id"},
	})
}
