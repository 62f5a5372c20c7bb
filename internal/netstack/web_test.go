package netstack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// web is an outside with web servers, and a guest that has rules.
type web struct {
	*outside
	t     testing.TB
	stack *Stack
	guest *guest
	roots *x509.CertPool
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey

	mu   sync.Mutex
	seen []*http.Request // by all origins, in order
}

func newWeb(t testing.TB, policyJSON string, change func(*Config)) *web {
	t.Helper()
	w := &web{outside: newOutside(), t: t, roots: x509.NewCertPool()}
	var err error
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	w.ca = w.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	w.roots.AddCert(w.ca)
	w.stack, w.guest = newPairWith(t, w.outside, policy(t, policyJSON), func(c *Config) {
		c.Roots = w.roots
		if change != nil {
			change(c)
		}
	})
	return w
}

func (w *web) sign(c *x509.Certificate) *x509.Certificate {
	w.t.Helper()
	parent := w.ca
	if parent == nil {
		parent = c
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &w.key.PublicKey, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// origin serves names at addr, on port 443 with TLS and on port 80 without.
func (w *web) origin(addr string, handler http.HandlerFunc, names ...string) {
	w.t.Helper()
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r.Clone(context.WithoutCancel(r.Context())))
		w.mu.Unlock()
		handler(rw, r)
	})
	cert := w.sign(&x509.Certificate{DNSNames: names})
	for port, secure := range map[string]bool{":443": true, ":80": false} {
		srv := httptest.NewUnstartedServer(h)
		srv.Config.ErrorLog = log.New(testWriter{w.t}, "", 0)
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetHTTP1(true)
		srv.Config.Protocols.SetUnencryptedHTTP2(!secure)
		srv.Config.Protocols.SetHTTP2(secure)
		if secure {
			srv.EnableHTTP2 = true
			srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: w.key}}}
			srv.StartTLS()
		} else {
			srv.Start()
		}
		w.t.Cleanup(srv.Close)
		w.route(addr+port, srv.Listener.Addr().String())
	}
	for _, n := range names {
		w.record(w.t, n+". 60 IN A "+addr)
		w.guest.lookup("udp", n, 1)
	}
}

// requests returns what the origins have seen since it was called before.
func (w *web) requests() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.seen
	w.seen = nil
	return out
}

// trusted are the roots of the guest.
func (w *web) trusted() *x509.CertPool {
	w.t.Helper()
	ca, err := w.stack.CA()
	if err != nil {
		w.t.Fatal(err)
	}
	pool := w.roots.Clone() // as the system's, for names without rules
	if !pool.AppendCertsFromPEM(ca.PEM()) {
		w.t.Fatal("no certificate")
	}
	return pool
}

// client of the guest that speaks HTTP/1.1 or 2 to addr, whatever the name.
func (w *web) client(addr string, http2 bool) *http.Client {
	w.t.Helper()
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(to)
			if err != nil {
				return nil, err
			}
			c, err := w.guest.dial(net.JoinHostPort(addr, port))
			if err != nil {
				return nil, err
			}
			return c, nil
		},
		TLSClientConfig: &tls.Config{RootCAs: w.trusted()}, Protocols: new(http.Protocols), DisableCompression: true,
	}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetHTTP2(http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do sends a request and returns the answer with its body.
func (w *web) do(c *http.Client, method, url string, change func(*http.Request)) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	res, err := c.Do(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, url, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: read the answer: %v", method, url, err)
	}
	return res, string(b)
}

// raw sends bytes of the guest's own making over TLS (name not empty) or not,
// and returns all that comes back.
func (w *web) raw(addr, name, text string) string {
	w.t.Helper()
	var c net.Conn = w.guest.mustDial(addr)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if name != "" {
		c = tls.Client(c, &tls.Config{ServerName: name, RootCAs: w.trusted(), NextProtos: []string{"http/1.1"}})
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "error: " + err.Error()
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return string(b) + "error: " + err.Error()
	}
	return string(b)
}

// refused are the decisions against requests and connections so far.
func (w *web) refused() (out []egress.Decision) {
	for _, d := range decisions(w.stack) {
		if !d.Allowed {
			out = append(out, d)
		}
	}
	return out
}

func hello200(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(rw, "hello "+r.Host+" "+strings.ToUpper(r.URL.EscapedPath()))
}
