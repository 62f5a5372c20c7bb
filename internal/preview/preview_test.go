package preview

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server of previews with one app behind "app".
type rig struct {
	t     *testing.T
	url   string // of the server, by address
	host  string // Host header of the app's preview
	done  chan struct{}
	dials atomic.Int64
	// admits is Target.Admits
	admits func(string) bool
	h      *Handler
}

func newRig(t *testing.T, app http.Handler) *rig {
	t.Helper()
	r := &rig{t: t, done: make(chan struct{})}
	var addr string
	if app != nil {
		srv := httptest.NewServer(app)
		t.Cleanup(srv.Close)
		addr = srv.Listener.Addr().String()
	}
	r.start(func(ctx context.Context) (net.Conn, error) {
		r.dials.Add(1)
		if addr == "" {
			return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	})
	return r
}

func (r *rig) start(dial func(context.Context) (net.Conn, error)) {
	r.h = New(Config{
		Hosts:  Hosts{Domain: "preview.example"},
		Logger: slog.New(slog.DiscardHandler),
		Resolve: func(_ context.Context, sub string) (Target, error) {
			switch sub {
			case "app":
				return Target{Admits: r.admits, Key: "se_1:3000", Sandbox: "box", Port: 3000, Dial: dial, Done: r.done}, nil
			case "stopped":
				return Target{}, fmt.Errorf("box: %w", ErrStopped)
			case "broken":
				return Target{}, errors.New("disk on fire")
			}
			return Target{}, ErrUnknownHost
		},
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	srv := &http.Server{Handler: r.h}
	Configure(srv)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	r.t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
		r.h.Close()
		wg.Wait()
	})
	r.url = "http://" + ln.Addr().String()
	r.host = "app.localhost:" + fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)
}

func (r *rig) request(method, path string, body io.Reader) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = r.host
	return req
}

func (r *rig) do(req *http.Request) *http.Response {
	r.t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	r.t.Cleanup(func() { res.Body.Close() })
	return res
}

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHosts(t *testing.T) {
	h := Hosts{Domain: "Preview.Example"}
	for host, want := range map[string]string{
		"a.localhost": "a", "A.LocalHost.:3000": "a", "a.preview.example": "a", "a.preview.example:443": "a",
		"localhost": "", "localhost:80": "", "preview.example": "", "example": "", "a.b.localhost": "", ".localhost": "",
		"127.0.0.1:80": "", "[::1]:80": "", "": "", "alocalhost": "", "a.preview.example.evil": "",
	} {
		sub, ok := h.Subdomain(host)
		if ok != (want != "") || ok && sub != want {
			t.Errorf("Subdomain(%q) = %q, %v", host, sub, ok)
		}
	}
	if !h.IsPreview("a.b.localhost") || h.IsPreview("localhost:1") || h.IsPreview("preview.example") || !h.IsPreview("x.preview.example") {
		t.Error("IsPreview")
	}
	if (Hosts{}).IsPreview("a.") || (Hosts{}).IsPreview("x.preview.example") {
		t.Error("IsPreview without a domain")
	}
}

func TestErrors(t *testing.T) {
	r := newRig(t, nil)
	for _, tc := range []struct {
		host   string
		status int
		holds  []string
	}{
		{"app.localhost", 502, []string{"SANDBOX_NOT_LISTENING", "3000", "box"}},
		{"app.preview.example", 502, []string{"SANDBOX_NOT_LISTENING"}},
		{"stopped.localhost", 410, []string{"sandbox_stopped", "Start it again"}},
		{"nobody.localhost", 404, []string{"not_found", "nobody.localhost"}},
		{"a.b.localhost", 404, []string{"not_found"}},
		{"broken.localhost", 500, []string{"internal"}},
	} {
		for _, accept := range []string{"", "*/*", "text/html,application/xhtml+xml;q=0.9"} {
			req := r.request("GET", "/", nil)
			req.Host = tc.host
			req.Header.Set("Accept", accept)
			res := r.do(req)
			body := text(t, res)
			if res.StatusCode != tc.status || res.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d, Cache-Control %q", tc.host, res.StatusCode, res.Header.Get("Cache-Control"))
			}
			for _, want := range tc.holds {
				if !strings.Contains(body, want) {
					t.Errorf("%s: %q does not hold %q", tc.host, body, want)
				}
			}
			html := strings.HasPrefix(accept, "text/html")
			if html != strings.HasPrefix(body, "<!doctype html>") || html != strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
				t.Errorf("%s, Accept %q: %s %.40q", tc.host, accept, res.Header.Get("Content-Type"), body)
			}
			if strings.Contains(body, "disk on fire") {
				t.Errorf("%s: the cause is shown", tc.host)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header()["Content-Type"] = nil
		w.Header().Set("X-Back", "1")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		fmt.Fprintf(w, "host=%s\nuri=%s\n", q.Host, q.RequestURI)
		for _, h := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-For", "X-Hop", "Accept-Encoding", "User-Agent", "X-Mine"} {
			fmt.Fprintf(w, "%s=%s\n", h, q.Header.Get(h))
		}
	}))
	req := r.request("GET", "/", nil)
	req.URL.Opaque = "/a%2Fb//c/%7e/..%2f/x;y?q=1;2&b=%zz&c=a+b"
	req.Header = http.Header{"X-Forwarded-For": {"1.2.3.4"}, "X-Forwarded-Host": {"evil"}, "Connection": {"X-Hop"}, "X-Hop": {"1"},
		"X-Mine": {"yes"}, "User-Agent": {"ua"}, "Accept-Encoding": {"identity"}}
	res := r.do(req)
	want := "host=" + r.host + "\nuri=/a%2Fb//c/%7e/..%2f/x;y?q=1;2&b=%zz&c=a+b\nX-Forwarded-Host=" + r.host +
		"\nX-Forwarded-Proto=http\nX-Forwarded-For=1.2.3.4, 127.0.0.1\nX-Hop=\nAccept-Encoding=identity\nUser-Agent=ua\nX-Mine=yes\n"
	if got := text(t, res); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if res.Header.Get("X-Back") != "1" || res.Header.Get("X-Hop") != "" || res.Header["Content-Type"] != nil {
		t.Errorf("answer's header: %v", res.Header)
	}
	behind := r.request("GET", "/?", nil)
	behind.Header.Set("X-Forwarded-Proto", "https")
	if got := text(t, r.do(behind)); !strings.Contains(got, "X-Forwarded-Proto=https") || !strings.Contains(got, "uri=/?\n") {
		t.Errorf("behind a TLS proxy: %s", got)
	}
	slashes := r.request("GET", "/", nil)
	slashes.URL.Path = "//two/slashes"
	if got := text(t, r.do(slashes)); !strings.Contains(got, "uri=//two/slashes\n") {
		t.Errorf("two slashes: %s", got)
	}
}

func TestLargeHeader(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, len(q.Header.Get("X-Big"))) }))
	req := r.request("GET", "/", nil)
	req.Header.Set("X-Big", strings.Repeat("x", 48<<10))
	if got := text(t, r.do(req)); got != fmt.Sprint(48<<10) {
		t.Errorf("got %q", got)
	}
	req.Header.Set("X-Big", strings.Repeat("x", 256<<10))
	if res := r.do(req); res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
}

// stream is n reproducible bytes.
func stream(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

func sum(r io.Reader) (string, error) {
	h := sha256.New()
	n, err := io.Copy(h, struct{ io.Reader }{r})
	return fmt.Sprintf("%d %x", n, h.Sum(nil)), err
}

// transfers answers /up with the hash of what came, /down with n bytes.
var transfers = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path == "/up" {
		s, err := sum(q.Body)
		fmt.Fprint(w, s, " ", err)
		return
	}
	var n int64
	fmt.Sscan(q.URL.Query().Get("n"), &n)
	_, _ = io.Copy(w, stream(n))
})

func TestLargeTransfers(t *testing.T) {
	const n = 64 << 20
	want, _ := sum(stream(n))
	r := newRig(t, transfers)
	h2 := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	for name, c := range map[string]*http.Client{"HTTP/1.1": http.DefaultClient, "HTTP/2": h2} {
		for _, kind := range []string{"length", "chunked", "expect"} {
			req := r.request("POST", "/up", struct{ io.Reader }{stream(n)})
			if kind != "chunked" {
				req.ContentLength = n
			}
			if kind == "expect" {
				req.Header.Set("Expect", "100-continue")
			}
			res, err := c.Do(req)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, kind, err)
			}
			if got := text(t, res); got != want+" <nil>" {
				t.Errorf("%s, %s: got %s, want %s", name, kind, got, want)
			}
			res.Body.Close()
		}
		res, err := c.Do(r.request("GET", fmt.Sprint("/down?n=", n), nil))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sum(res.Body); err != nil || got != want {
			t.Errorf("%s down: %s, %v", name, got, err)
		}
		res.Body.Close()
		if want := map[string]int{"HTTP/1.1": 1, "HTTP/2": 2}[name]; res.ProtoMajor != want {
			t.Errorf("%s: answered in %s", name, res.Proto)
		}
	}
}

func TestParallel(t *testing.T) {
	const n = 1 << 20
	want, _ := sum(stream(n))
	r := newRig(t, transfers)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			res, err := http.DefaultClient.Do(r.request("GET", fmt.Sprint("/down?n=", n), nil))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if got, err := sum(res.Body); err != nil || got != want {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// The app refuses the upload before it has read any of it.
func TestEarlyRefusal(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "too much", http.StatusRequestEntityTooLarge)
	}))
	req := r.request("POST", "/", struct{ io.Reader }{stream(64 << 20)})
	req.ContentLength = 64 << 20
	req.Header.Set("Expect", "100-continue")
	if res := r.do(req); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
}

// An answer that breaks off must not look complete.
func TestBrokenAnswer(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(w, stream(1<<20))
		panic(http.ErrAbortHandler)
	}))
	res := r.do(r.request("GET", "/", nil))
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("%d bytes and no error", n)
	}
}

// Each event arrives before the next is made.
func TestServerSentEvents(t *testing.T) {
	next := make(chan struct{})
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	res := r.do(r.request("GET", "/", nil))
	br := bufio.NewReader(res.Body)
	for i := range 5 {
		line, err := br.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
			t.Fatalf("%q, %v, want %q", line, err, want)
		}
		if _, err := br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
}

// Both directions of one exchange stream at once: each chunk is echoed
// before the next is sent.
func TestFullDuplex(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		b := make([]byte, 5)
		for {
			if _, err := io.ReadFull(q.Body, b); err != nil {
				return
			}
			_, _ = w.Write(b)
			_ = rc.Flush()
		}
	}))
	pr, pw := io.Pipe()
	go func() { _, _ = io.WriteString(pw, "12345") }()
	res := r.do(r.request("POST", "/", pr))
	b := make([]byte, 5)
	for range 5 {
		if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "12345" {
			t.Fatalf("%q, %v", b, err)
		}
		if _, err := io.WriteString(pw, "12345"); err != nil {
			t.Fatal(err)
		}
	}
	pw.Close()
	_, _ = io.Copy(io.Discard, res.Body)
}

func TestTrailers(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.Copy(w, q.Body)
		w.Header().Set("X-Sum", "got "+q.Trailer.Get("X-Req"))
	}))
	req := r.request("POST", "/", struct{ io.Reader }{strings.NewReader("body")})
	req.Trailer = http.Header{"X-Req": {"t"}}
	res := r.do(req)
	if b := text(t, res); b != "body" || res.Trailer.Get("X-Sum") != "got t" {
		t.Errorf("%q, trailers %v", b, res.Trailer)
	}
}

func TestKeepAliveAndEnd(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 5 {
		_ = text(t, r.do(r.request("GET", "/", nil)))
	}
	if n := r.dials.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests, want 1", n)
	}
	close(r.done)
	r.h.pool.wg.Wait()
	if len(r.h.pool.byKey) != 0 {
		t.Error("the ended session's transport is kept")
	}
}

func TestWebSocket(t *testing.T) {
	hosts := make(chan string, 1)
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		hosts <- q.Host + " " + q.Header.Get("X-Forwarded-Host") + " " + q.Header.Get("X-Forwarded-Proto")
		c, err := websocket.Accept(w, q, &websocket.AcceptOptions{Subprotocols: []string{"vite-hmr"}})
		if err != nil {
			return
		}
		c.SetReadLimit(-1)
		for {
			typ, b, err := c.Read(context.Background())
			if err != nil {
				return
			}
			if string(b) == "close" {
				c.Close(4001, "bye")
				return
			}
			if c.Write(context.Background(), typ, b) != nil {
				return
			}
		}
	}))
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", strings.TrimPrefix(r.url, "http://"))
	}}}
	c, res, err := websocket.Dial(t.Context(), "ws://"+r.host+"/hmr", &websocket.DialOptions{HTTPClient: hc, Subprotocols: []string{"other", "vite-hmr"}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Body != nil {
		res.Body.Close()
	}
	defer c.CloseNow()
	if got, want := <-hosts, r.host+" "+r.host+" http"; got != want || c.Subprotocol() != "vite-hmr" {
		t.Errorf("hosts %q, want %q; subprotocol %q", got, want, c.Subprotocol())
	}
	c.SetReadLimit(-1)
	big, _ := io.ReadAll(stream(1 << 20))
	for _, m := range [][]byte{[]byte("hi"), big, {}} {
		if err := c.Write(t.Context(), websocket.MessageBinary, m); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || !bytes.Equal(got, m) {
			t.Fatalf("echo of %d bytes: %d, %v", len(m), len(got), err)
		}
	}
	if err := c.Write(t.Context(), websocket.MessageText, []byte("close")); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Read(t.Context())
	var ce websocket.CloseError
	if !errors.As(err, &ce) || ce.Code != 4001 || ce.Reason != "bye" {
		t.Errorf("ended with %v, want close code 4001", err)
	}
}

// An upgrade to a protocol that nobody knows passes bytes both ways, after
// both sides have been silent for longer than any time-out of the server.
func TestIdleUpgrade(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", q.Header.Get("Upgrade"))
		rw.Flush()
		_, _ = io.Copy(c, rw)
	}))
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n", r.host)
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	time.Sleep(idleTimeout + idleTimeout/2) // the only time-out that could cut it
	fmt.Fprint(c, "still here")
	b := make([]byte, 10)
	if _, err := io.ReadFull(br, b); err != nil || string(b) != "still here" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestSessionEndsDuringRequest(t *testing.T) {
	r := &rig{t: t, done: make(chan struct{})}
	r.start(func(context.Context) (net.Conn, error) {
		close(r.done)
		return nil, errors.New("network stack is closed")
	})
	if res := r.do(r.request("GET", "/", nil)); res.StatusCode != http.StatusGone {
		t.Errorf("status %d: %s", res.StatusCode, text(t, res))
	}
}
