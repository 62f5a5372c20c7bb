package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reloadEvery is how often the files of a certificate are looked at.
const reloadEvery = time.Second

// Certificate is a TLS certificate in files that others renew. Safe for
// concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  [2]fileStamp // of the files, when they were last read
	looked time.Time
}

// fileStamp tells whether a file has changed.
type fileStamp struct {
	size    int64
	changed time.Time
}

// LoadCertificate reads a certificate with its chain and its key, in PEM.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if _, err := c.get(time.Now()); err != nil {
		return nil, err
	}
	if c.loaded.Leaf != nil && time.Now().After(c.loaded.Leaf.NotAfter) {
		return nil, fmt.Errorf("certificate %s: it ended on %s; renew it", certFile, c.loaded.Leaf.NotAfter.Format(time.DateOnly))
	}
	return c, nil
}

// Config is a configuration of a server that has the certificate. Renewed
// files are used within a second; where they cannot be read, or do not belong
// together yet, the old ones go on.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.get(time.Now())
	}}
}

// Covers tells whether the certificate is good for a name.
func (c *Certificate) Covers(name string) error {
	cert, err := c.get(time.Now())
	if err != nil {
		return err
	}
	leaf := cert.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return fmt.Errorf("certificate %s: %w", c.certFile, err)
		}
	}
	return leaf.VerifyHostname(name)
}

func (c *Certificate) get(now time.Time) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && now.Sub(c.looked) < reloadEvery {
		return c.loaded, nil
	}
	c.looked = now
	var stamp [2]fileStamp
	for i, name := range []string{c.certFile, c.keyFile} {
		if fi, err := os.Stat(name); err == nil {
			stamp[i] = fileStamp{fi.Size(), fi.ModTime()}
		}
	}
	if c.loaded != nil && stamp == c.stamp {
		return c.loaded, nil
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	switch {
	case err == nil:
		if c.loaded != nil {
			c.log.Info("certificate renewed", "file", c.certFile)
		}
		c.loaded, c.stamp = &cert, stamp
	case c.loaded == nil:
		return nil, fmt.Errorf("load certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	default: // asked again in a second
		c.log.Warn("the renewed certificate cannot be used; the old one goes on", "file", c.certFile, "err", err)
	}
	return c.loaded, nil
}
