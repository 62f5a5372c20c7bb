package netstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

const fenced = `{"allow":{"api.test":[
	{"match":{"path":{"startsWith":"/v1/"},"method":["GET","POST"]},"transform":[{"headers":{"Authorization":"Bearer s3cret"}}]},
	{"match":{"path":{"exact":"/mock"}},"response":{"statusCode":201,"headers":{"X-Mock":"1"},"body":"mocked","contentType":"text/x-mock"}},
	{"response":{"statusCode":403,"body":"not here","contentType":"text/plain"}}],
	"open.test":[{"transform":[{"headers":{"X-Key":"k3y"}}]}],"plain.test":[]}}`

// forms runs f with HTTP/1.1 and HTTP/2, over TLS and without.
func forms(t *testing.T, f func(t *testing.T, scheme string, http2 bool)) {
	for _, scheme := range []string{"https", "http"} {
		for _, two := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", scheme, two), func(t *testing.T) { f(t, scheme, two) })
		}
	}
}

func TestRules(t *testing.T) {
	forms(t, func(t *testing.T, scheme string, two bool) {
		w := newWeb(t, fenced, nil)
		w.origin("93.0.0.1", hello200, "api.test")
		c := w.client("93.0.0.1", two)
		for _, tc := range []struct {
			method, target string
			status         int
			body, sent     string // path and query that the origin sees; "" for none
		}{
			{"GET", "/v1/x?a=%41&b", 200, "hello api.test /V1/X", "/v1/x?a=%41&b"},
			{"POST", "/v1/a%2fb", 200, "hello api.test /V1/A%2FB", "/v1/a%2Fb"},
			{"GET", "/x/%2e%2E//v1/y/.", 200, "hello api.test /V1/Y/", "/v1/y/"},
			{"DELETE", "/v1/x", 403, "not here", ""},
			{"GET", "/v1/%2e%2e/admin", 403, "not here", ""},
			{"GET", "/mock", 201, "mocked", ""},
			{"HEAD", "/mock", 201, "", ""},
			{"GET", "/", 403, "not here", ""},
		} {
			res, body := w.do(c, tc.method, scheme+"://api.test"+tc.target, func(r *http.Request) { r.Header.Set("Authorization", "guess") })
			if res.StatusCode != tc.status || body != tc.body {
				t.Errorf("%s %s: %d %q", tc.method, tc.target, res.StatusCode, body)
			}
			if tc.target == "/mock" && (res.Header.Get("X-Mock") != "1" || res.Header.Get("Content-Type") != "text/x-mock") {
				t.Errorf("headers of the answer: %v", res.Header)
			}
			seen := w.requests()
			if tc.sent == "" {
				if len(seen) != 0 {
					t.Errorf("%s %s reached the origin", tc.method, tc.target)
				}
				continue
			}
			if len(seen) != 1 || seen[0].RequestURI != tc.sent || seen[0].Header.Get("Authorization") != "Bearer s3cret" || (seen[0].ProtoMajor == 2) != (two || scheme == "https") {
				t.Errorf("%s %s: the origin saw %+v", tc.method, tc.target, seen)
			}
		}
		for _, d := range w.stack.Log().Since(0).Records {
			if s := fmt.Sprintf("%+v", d); strings.Contains(s, "s3cret") {
				t.Errorf("the log has the secret: %s", s)
			}
		}
		if no := w.refused(); len(no) != 3 || no[0].Method != "DELETE" || no[0].Rule != "allow api.test[2].response" || no[0].Status != 403 || no[0].Proto != scheme {
			t.Errorf("refused: %+v", no)
		}
	})
}

// What rules answer in its place needs no destination, and reaches none.
func TestResponseWithoutDestination(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.record(t, "api.test. 60 IN A 93.0.0.7")
	w.guest.lookup("udp", "api.test", 1)
	c := w.client("93.0.0.7", true)
	if res, body := w.do(c, "GET", "https://api.test/mock", nil); res.StatusCode != 201 || body != "mocked" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if n := w.dialled("93.0.0.7:443"); n != 0 {
		t.Errorf("dialled %d times", n)
	}
	if res, body := w.do(c, "GET", "https://api.test/v1/", nil); res.StatusCode != 502 || !strings.Contains(body, "93.0.0.7:443") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// Names without rules are not opened, also at an address that is shared with
// one that has them.
func TestOnlyNamesWithRulesAreOpened(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.origin("93.0.0.1", hello200, "plain.test", "open.test")
	for name, issuer := range map[string]string{"plain.test": "test", "open.test": "Glovebox sandbox CA"} {
		c := tls.Client(w.guest.mustDial("93.0.0.1:443"), &tls.Config{ServerName: name, RootCAs: w.trusted()})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().PeerCertificates[0].Issuer.CommonName; got != issuer {
			t.Errorf("%s has a certificate of %q", name, got)
		}
		c.Close()
	}
}

func TestUpstreamIsVerified(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.origin("93.0.0.1", hello200, "other.test")
	w.record(t, "open.test. 60 IN A 93.0.0.1")
	w.guest.lookup("udp", "open.test", 1)
	res, body := w.do(w.client("93.0.0.1", true), "GET", "https://open.test/", nil)
	if res.StatusCode != 502 || !strings.Contains(body, "certificate") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if len(w.requests()) != 0 {
		t.Error("the request, with its secret, has reached the wrong server")
	}
}

// Both directions at once, chunk by chunk, with trailers, and without a limit.
func TestStreams(t *testing.T) {
	forms(t, func(t *testing.T, scheme string, two bool) {
		w := newWeb(t, fenced, nil)
		w.origin("93.0.0.1", func(rw http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(rw)
			_ = rc.EnableFullDuplex() // HTTP/2 always is
			rw.Header().Set("Trailer", "X-Sum")
			rw.WriteHeader(200)
			_ = rc.Flush()
			sum := sha256.New()
			buf := make([]byte, 64<<10)
			for {
				n, err := r.Body.Read(buf)
				sum.Write(buf[:n])
				_, _ = rw.Write(buf[:n])
				_ = rc.Flush()
				if err != nil {
					break
				}
			}
			rw.Header().Set("X-Sum", fmt.Sprintf("%x %s", sum.Sum(nil), r.Trailer.Get("X-End")))
		}, "open.test")
		pr, pw := io.Pipe()
		r, err := http.NewRequest("POST", scheme+"://open.test/echo", pr)
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-End": nil}
		res, err := w.client("93.0.0.1", two).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for i := range 3 { // each chunk comes back before the next is sent
			msg := []byte(fmt.Sprintf("chunk %d", i))
			if _, err := pw.Write(msg); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(msg))
			if _, err := io.ReadFull(res.Body, got); err != nil || !bytes.Equal(got, msg) {
				t.Fatalf("%q, %v", got, err)
			}
		}
		const size = 24 << 20
		go func() {
			_, _ = io.CopyN(pw, zeros{}, size)
			r.Trailer.Set("X-End", "end")
			pw.Close()
		}()
		if n, err := io.Copy(io.Discard, res.Body); err != nil || n != size {
			t.Fatalf("%d bytes, %v", n, err)
		}
		sum := sha256.New()
		sum.Write([]byte("chunk 0chunk 1chunk 2"))
		_, _ = io.CopyN(sum, zeros{}, size)
		if got, want := res.Trailer.Get("X-Sum"), fmt.Sprintf("%x end", sum.Sum(nil)); got != want {
			t.Errorf("trailer %q, want %q", got, want)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestWebSocket(t *testing.T) {
	for _, scheme := range []string{"https", "http"} {
		w := newWeb(t, fenced, nil)
		w.origin("93.0.0.1", func(rw http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(rw, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.CloseNow()
			_, b, err := c.Read(r.Context())
			if err == nil {
				err = c.Write(r.Context(), websocket.MessageText, append([]byte(r.Header.Get("X-Key")+" "), b...))
			}
			if err != nil {
				t.Error(err)
			}
			_ = c.Close(websocket.StatusNormalClosure, "bye") // the client does not wait for the end of the end
		}, "open.test")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		client := w.client("93.0.0.1", false)
		client.Timeout = 0
		c, _, err := websocket.Dial(ctx, scheme+"://open.test/ws", &websocket.DialOptions{HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(ctx, websocket.MessageText, []byte("hi")); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(ctx); err != nil || string(b) != "k3y hi" {
			t.Errorf("%q, %v", b, err)
		}
		if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("the end: %v", err)
		}
		c.CloseNow()
	}
}

// Plain HTTP under a policy of names, with and without rules: every request
// of a connection must be for a name that its address was resolved for.
func TestHostMustAgree(t *testing.T) {
	w := newWeb(t, `{"allow":["good.test","also.test"]}`, nil)
	w.origin("93.0.0.1", hello200, "good.test", "also.test")
	if out := w.raw("93.0.0.1:80", "", "GET /a//b/../%7e HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.1\r\nHost: ALSO.test:80\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\nGET / HTTP/1.1\r\nHost: good.test\r\n\r\n"); strings.Count(out, "200 OK") != 2 || strings.Count(out, "403 Forbidden") != 1 || !strings.Contains(out, `"evil.test"`) {
		t.Errorf("%q", out)
	}
	seen := w.requests()
	if len(seen) != 2 || seen[0].RequestURI != "/a//b/../%7e" || seen[1].Host != "ALSO.test:80" {
		t.Errorf("the origin saw %+v", seen)
	}
	if out := w.raw("93.0.0.1:80", "", "GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"); !strings.Contains(out, "hello good.test") {
		t.Errorf("absolute form: %q", out)
	}
	if no := w.refused(); len(no) != 1 || no[0].Rule != "host name" || no[0].Name != "evil.test" {
		t.Errorf("refused: %+v", no)
	}
	one := newWeb(t, `{"allow":["good.test"]}`, nil)
	one.origin("93.0.0.1", hello200, "good.test")
	if out := one.raw("93.0.0.1:80", "", "GET /old HTTP/1.0\r\n\r\n"); !strings.HasSuffix(out, "hello good.test /OLD") {
		t.Errorf("HTTP/1.0 without a host: %q", out)
	}
}

// Other protocols, also those in which the server speaks first, are none of
// this business where the name has no rules.
func TestOtherProtocolsPass(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.record(t, "plain.test. 60 IN A 93.0.0.5")
	w.record(t, "open.test. 60 IN A 93.0.0.6")
	greet := serve(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "220 welcome\r\n")
		echo(c)
	})
	w.route("93.0.0.5:25", greet)
	w.route("93.0.0.6:25", greet)
	w.guest.lookup("udp", "plain.test", 1)
	w.guest.lookup("udp", "open.test", 1)
	c := w.guest.mustDial("93.0.0.5:25")
	b := make([]byte, 13)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "220 welcome\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
	roundTrip(t, c) // half a line
	_, _ = io.WriteString(c, "EHLO x\r\n")
	if _, err := io.ReadFull(c, b[:8]); err != nil || string(b[:8]) != "EHLO x\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
	if out := w.raw("93.0.0.6:25", "", "EHLO x\r\n"); strings.Contains(out, "220") {
		t.Errorf("another protocol reaches a name with rules: %q", out)
	}
	if no := w.refused(); len(no) != 1 || no[0].Rule != "rules" || no[0].Name != "open.test" {
		t.Errorf("refused: %+v", no)
	}
}

// A new policy holds for open connections: those that went past rules that
// it brings are reset, and opened ones obey the new rules.
func TestRulesChange(t *testing.T) {
	w := newWeb(t, `{"allow":["open.test"]}`, nil)
	w.origin("93.0.0.1", hello200, "open.test")
	past := tls.Client(w.guest.mustDial("93.0.0.1:443"), &tls.Config{ServerName: "open.test", RootCAs: w.trusted()})
	if err := past.Handshake(); err != nil {
		t.Fatal(err)
	}
	w.stack.SetPolicy(policy(t, fenced))
	if _, err := past.Read(make([]byte, 1)); err == nil {
		t.Error("a connection past the rules is still open")
	}
	c := w.client("93.0.0.1", true)
	key := func() string {
		w.do(c, "GET", "https://open.test/", nil)
		return w.requests()[0].Header.Get("X-Key")
	}
	if k := key(); k != "k3y" {
		t.Errorf("key %q", k)
	}
	w.stack.SetPolicy(policy(t, strings.ReplaceAll(fenced, "k3y", "new")))
	if k := key(); k != "new" {
		t.Errorf("key %q after the change", k)
	}
	w.stack.SetPolicy(policy(t, `{"allow":["open.test"]}`))
	if k := key(); k != "" {
		t.Errorf("key %q without rules", k)
	}
	w.stack.SetPolicy(policy(t, `{"allow":["plain.test"]}`))
	if _, err := c.Get("https://open.test/"); err == nil {
		t.Error("a name that is no longer allowed is reachable")
	}
}

// What the server denies has no name in plain HTTP either, whatever the
// policy says of the address.
func TestServerDeniesHosts(t *testing.T) {
	w := newWeb(t, `"allow-all"`, func(c *Config) {
		var err error
		if c.Deny, err = egress.ParseDenyList("evil.test"); err != nil {
			t.Fatal(err)
		}
	})
	w.origin("93.0.0.1", hello200, "good.test")
	out := w.raw("93.0.0.1:80", "", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
	if strings.Count(out, "200 OK") != 1 || strings.Count(out, "403 Forbidden") != 1 {
		t.Errorf("%q", out)
	}
}

// A request to a rule's proxy brings where it was to go and who sends it.
func TestForward(t *testing.T) {
	w := newWeb(t, `{"allow":{"api.test":[{"match":{"method":["GET","POST"]},"forwardURL":"https://proxy.test/hook/"},{"match":{"method":["PUT"]},"forwardURL":"https://inner.test"}]}}`, func(c *Config) {
		c.Token = func(audience string) (string, error) { return "token for " + audience, nil }
	})
	w.origin("93.0.0.1", hello200, "api.test")
	w.origin("93.0.0.9", func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s %s %s", r.Host, r.RequestURI, b)
	}, "proxy.test")
	w.record(t, "inner.test. 60 IN A 10.0.0.5")
	w.requests()
	c := w.client("93.0.0.1", true)
	res, body := w.do(c, "POST", "https://api.test/a/../b?q=1", func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader("body"))
		r.Header.Set("Vercel-Forwarded-Host", "spoofed")
		r.Header.Set("Vercel-Sandbox-Oidc-Token", "spoofed")
	})
	if res.StatusCode != 200 || body != "proxy.test /hook/b?q=1 body" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	seen := w.requests()
	if len(seen) != 1 {
		t.Fatalf("%d requests", len(seen))
	}
	for k, want := range map[string]string{
		"Vercel-Forwarded-Host": "api.test", "Vercel-Forwarded-Scheme": "https", "Vercel-Forwarded-Port": "443",
		"Vercel-Forwarded-Path": "/b?q=1", "Vercel-Sandbox-Oidc-Token": "token for https://proxy.test/hook",
	} {
		if got := seen[0].Header[k]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	if n := w.dialled("93.0.0.1:443"); n != 0 {
		t.Errorf("the destination was dialled %d times", n)
	}
	if res, body := w.do(c, "GET", "http://api.test/", nil); res.StatusCode != 200 || body != "proxy.test /hook/ " {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	// A proxy at a private address needs an entry of subnets.allow.
	if res, body := w.do(c, "PUT", "https://api.test/", nil); res.StatusCode != 502 || !strings.Contains(body, "private range") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	// What no rule takes goes where it was to go.
	if res, body := w.do(c, "DELETE", "https://api.test/x", nil); res.StatusCode != 200 || body != "hello api.test /X" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}
