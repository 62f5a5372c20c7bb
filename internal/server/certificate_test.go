package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// writeCertificate writes a certificate for *.preview.example, and its key.
func writeCertificate(t *testing.T, dir string, serial int64, ends time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"*.preview.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: ends, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS: the server speaks TLS with HTTP/1.1 and HTTP/2, a renewed
// certificate is used without a restart, and a broken one is not.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := writeCertificate(t, dir, 1, time.Now().Add(time.Hour))
	cert, err := server.LoadCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.Covers("a.preview.example"); err != nil {
		t.Error(err)
	}
	if cert.Covers("a.other.example") == nil {
		t.Error("it covers every name")
	}
	s, err := server.New(server.Config{Control: fakecontrol.New(), TLS: cert.Config(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- s.Serve(ctx, ln) }()
	serial := func(proto int) int64 {
		t.Helper()
		var protocols http.Protocols
		protocols.SetHTTP1(proto == 1)
		protocols.SetHTTP2(proto == 2)
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: &protocols, DisableKeepAlives: true}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: deadline}).Get("https://" + ln.Addr().String() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ProtoMajor != proto {
			t.Errorf("status %d over %s", resp.StatusCode, resp.Proto)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if a, b := serial(1), serial(2); a != 1 || b != 1 {
		t.Errorf("serial numbers %d, %d", a, b)
	}
	if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // as long as it does not look at the files
	if n := serial(1); n != 1 {
		t.Errorf("with a broken file: %d", n)
	}
	writeCertificate(t, dir, 2, time.Now().Add(time.Hour))
	for end := time.Now().Add(deadline); serial(1) != 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the renewed certificate is not used")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBadCertificate(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, err := server.LoadCertificate("/nonexistent/c", "/nonexistent/k", log); err == nil {
		t.Error("missing files")
	}
	cert, key := writeCertificate(t, t.TempDir(), 1, time.Now().Add(-time.Minute))
	if _, err := server.LoadCertificate(cert, key, log); err == nil {
		t.Error("one that has ended")
	}
	_, otherKey := writeCertificate(t, t.TempDir(), 1, time.Now().Add(time.Hour))
	if _, err := server.LoadCertificate(cert, otherKey, log); err == nil {
		t.Error("the key of another")
	}
}
