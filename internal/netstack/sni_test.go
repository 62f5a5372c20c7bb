package netstack

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// hello is what a TLS client sends first.
func hello(t testing.TB, server string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		_ = tls.Client(a, &tls.Config{ServerName: server, InsecureSkipVerify: true}).Handshake()
		a.Close()
	}()
	buf := make([]byte, 8192)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	for n < 5 || n < 5+int(buf[3])<<8+int(buf[4]) {
		k, err := b.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	return buf[:n]
}

func TestReadHello(t *testing.T) {
	h := hello(t, "good.test")
	for i := range len(h) {
		if name, st := readHello(h[:i]); st != helloPartial || name != "" {
			t.Fatalf("after %d of %d bytes: %q, %v", i, len(h), name, st)
		}
	}
	if name, st := readHello(append(h, "more"...)); st != helloTLS || name != "good.test" {
		t.Errorf("%q, %v", name, st)
	}
	// The same message in records of 20 bytes.
	var split []byte
	for rest := h[5:]; len(rest) > 0; {
		n := min(20, len(rest))
		split = append(append(split, 22, 3, 1, 0, byte(n)), rest[:n]...)
		rest = rest[n:]
	}
	if name, st := readHello(split); st != helloTLS || name != "good.test" {
		t.Errorf("split: %q, %v", name, st)
	}
	if name, st := readHello(hello(t, "")); st != helloTLS || name != "" {
		t.Errorf("no name: %q, %v", name, st)
	}
	for _, s := range []string{"GET / HTTP/1.1\r\n", "SSH-2.0", "\x00\x00\x00\x08\x04\xd2\x16\x2f", "\x16\x02"} {
		if _, st := readHello([]byte(s)); st != helloNotTLS {
			t.Errorf("%q: %v", s, st)
		}
	}
}

// A TLS origin that also serves another name, as a CDN does.
func TestServerNameMustAgree(t *testing.T) {
	o := newOutside()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.TLS.ServerName) }))
	srv.Config.ErrorLog = log.New(testWriter{t}, "", 0)
	srv.StartTLS()
	defer srv.Close()
	o.route("93.0.0.1:443", srv.Listener.Addr().String())
	o.record(t, "good.test. 1 IN A 93.0.0.1")
	_, g := newPair(t, o, policy(t, `{"allow":["good.test"]}`))
	g.lookup("udp", "good.test", 1)
	for server, ok := range map[string]bool{"good.test": true, "evil.test": false, "": false} {
		c := tls.Client(g.mustDial("93.0.0.1:443"), &tls.Config{ServerName: server, InsecureSkipVerify: true})
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if err := c.Handshake(); (err == nil) != ok {
			t.Errorf("TLS for %q: %v", server, err)
		}
		c.Close()
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello(f, "good.test"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, st := readHello(b)
		if st != helloTLS && name != "" {
			t.Errorf("a name without TLS: %q", name)
		}
		if len(b) > maxHello+16<<10 && st == helloPartial {
			t.Errorf("%d bytes are not enough", len(b))
		}
	})
}
