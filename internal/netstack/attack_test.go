package netstack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// What a guest may try at a connection that is opened for it. None of it
// reaches the origin, and each leaves a record.
func TestAttacks(t *testing.T) {
	const host = "Host: api.test\r\n"
	for _, tc := range []struct {
		name, text string
		plain      bool   // without TLS
		want       string // in the answer
		rule       string // of the record
	}{
		{name: "another host", text: "GET /v1/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", want: "421", rule: "host name"},
		{name: "another allowed host", text: "GET /v1/ HTTP/1.1\r\nHost: open.test\r\n\r\n", want: "421", rule: "host name"},
		{name: "another host in plain", text: "GET /v1/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", plain: true, want: "403", rule: "host name"},
		{name: "absolute form", text: "GET http://evil.test/v1/ HTTP/1.1\r\n" + host + "\r\n", want: "421", rule: "host name"},
		{name: "another port", text: "GET /v1/ HTTP/1.1\r\nHost: api.test:8443\r\n\r\n", want: "421", rule: "host name"},
		{name: "no host", text: "GET /v1/ HTTP/1.1\r\n\r\n", want: "400", rule: "malformed request"},
		{name: "empty host", text: "GET /v1/ HTTP/1.1\r\nHost: \r\n\r\n", want: "421", rule: "host name"},
		{name: "two hosts", text: "GET /v1/ HTTP/1.1\r\n" + host + "Host: evil.test\r\n\r\n", want: "400", rule: "malformed request"},
		{name: "host with a user", text: "GET /v1/ HTTP/1.1\r\nHost: api.test@evil.test\r\n\r\n", want: "4", rule: ""},
		{name: "dots", text: "GET /v1/../x HTTP/1.1\r\n" + host + "\r\n", want: "not here", rule: "allow api.test[2].response"},
		{name: "escaped dots", text: "GET /v1/%2e%2e/x HTTP/1.1\r\n" + host + "\r\n", want: "not here", rule: "allow api.test[2].response"},
		{name: "escaped slash", text: "GET /v1/..%2fx HTTP/1.1\r\n" + host + "\r\n", want: "403", rule: "allow api.test"},
		{name: "backslash", text: "GET /v1/..%5cx HTTP/1.1\r\n" + host + "\r\n", want: "403", rule: "allow api.test"},
		{name: "parameters", text: "GET /v1/..;/x HTTP/1.1\r\n" + host + "\r\n", want: "403", rule: "allow api.test"},
		{name: "twice escaped", text: "GET /v1/%252e%252e/x HTTP/1.1\r\n" + host + "\r\n", want: "403", rule: "allow api.test"},
		{name: "NUL", text: "GET /v1/%00 HTTP/1.1\r\n" + host + "\r\n", want: "400", rule: "allow api.test"},
		{name: "slashes", text: "GET //v1//../x HTTP/1.1\r\n" + host + "\r\n", want: "not here", rule: "allow api.test[2].response"},
		{name: "CONNECT", text: "CONNECT api.test:443 HTTP/1.1\r\n" + host + "\r\n", want: "405", rule: "CONNECT"},
		{name: "CONNECT elsewhere", text: "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n", plain: true, want: "405", rule: "CONNECT"},
		{name: "TRACE", text: "TRACE /v1/ HTTP/1.1\r\n" + host + "\r\n", want: "405", rule: "allow api.test"},
		{name: "method in lower case", text: "get /v1/ HTTP/1.1\r\n" + host + "\r\n", want: "not here", rule: "allow api.test[2].response"},
		{name: "method override is no method", text: "PUT /v1/ HTTP/1.1\r\n" + host + "X-HTTP-Method-Override: GET\r\n\r\n", want: "not here", rule: "allow api.test[2].response"},
		{name: "two lengths", text: "POST /v1/ HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", want: "400", rule: "malformed request"},
		{name: "odd coding", text: "POST /v1/ HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", want: "501", rule: "malformed request"},
		{name: "two codings", text: "POST /v1/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", want: "501", rule: "malformed request"},
		{name: "space before colon", text: "GET /v1/ HTTP/1.1\r\n" + host + "X : y\r\n\r\n", want: "400", rule: "malformed request"},
		{name: "line break in a header", text: "GET /v1/ HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n", want: "400", rule: "malformed request"},
		{name: "no HTTP", text: "SSH-2.0-x\r\n\r\n\r\n", want: "400", rule: "malformed request"},
		{name: "blank line first", text: "\r\nGET /v1/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", plain: true, want: "400", rule: "malformed request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWeb(t, fenced, nil)
			w.origin("93.0.0.1", hello200, "api.test", "open.test")
			addr, name := "93.0.0.1:443", "api.test"
			if tc.plain {
				addr, name = "93.0.0.1:80", ""
			}
			head, body, _ := strings.Cut(tc.text, "\r\n\r\n")
			out := w.raw(addr, name, head+"\r\nConnection: close\r\n\r\n"+body)
			if !strings.Contains(out, tc.want) {
				t.Errorf("answer %q, want %q in it", out, tc.want)
			}
			if seen := w.requests(); len(seen) != 0 {
				t.Errorf("the origin saw %+v", seen[0])
			}
			await(t, "the record", func() bool { return len(w.refused()) > 0 || tc.rule == "" })
			for _, d := range w.refused() {
				if d.Rule != tc.rule && tc.rule != "" {
					t.Errorf("record %+v, want rule %q", d, tc.rule)
				}
			}
		})
	}
}

// Bodies that two parsers would end at different places become requests of
// our own making, with one length.
func TestSmuggling(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.origin("93.0.0.1", func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "body %q, lengths %q, codings %q\n", b, r.Header["Content-Length"], r.TransferEncoding)
	}, "open.test")
	for _, addr := range []string{"93.0.0.1:443", "93.0.0.1:80"} {
		name := map[bool]string{true: "open.test"}[addr == "93.0.0.1:443"]
		out := w.raw(addr, name, "POST / HTTP/1.1\r\nHost: open.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+
			"2\r\nab\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: open.test\r\n\r\n")
		if !strings.Contains(out, `body "ab", lengths []`) {
			t.Errorf("%q", out)
		}
		for _, r := range w.requests() {
			if r.URL.Path == "/smuggled" {
				t.Error("a second request has reached the origin")
			}
		}
	}
	// A guest cannot have its header taken for one of the hop, to lose ours.
	out := w.raw("93.0.0.1:443", "open.test", "GET / HTTP/1.1\r\nHost: open.test\r\nConnection: close, x-key\r\nX-Key: mine\r\n\r\n")
	if seen := w.requests(); len(seen) != 1 || seen[0].Header.Get("X-Key") != "k3y" {
		t.Errorf("%q, the origin saw %+v", out, seen)
	}
	// Nor change to a protocol in which its requests pass unseen.
	w.raw("93.0.0.1:80", "", "GET / HTTP/1.1\r\nHost: open.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nGET /end HTTP/1.0\r\nHost: open.test\r\n\r\n")
	if seen := w.requests(); len(seen) == 0 || seen[0].Header.Get("Upgrade") != "" || seen[0].Header.Get("Http2-Settings") != "" {
		t.Errorf("the origin saw %+v", seen)
	}
}

func TestTLSNameAttacks(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.origin("93.0.0.1", hello200, "api.test")
	for _, name := range []string{"evil.test", "open.test", ""} {
		c := tls.Client(w.guest.mustDial("93.0.0.1:443"), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := c.Handshake(); err == nil {
			t.Errorf("TLS for %q at an address of api.test", name)
		}
		c.Close()
	}
	no := w.refused()
	for _, d := range no {
		if d.Rule != "server name" {
			t.Errorf("record %+v", d)
		}
	}
	if len(no) != 3 || w.dialled("93.0.0.1:443") != 0 {
		t.Errorf("%d records, dialled %d times", len(no), w.dialled("93.0.0.1:443"))
	}
}

// The authority of HTTP/2, its host header and the server name must agree.
func TestHTTP2Authority(t *testing.T) {
	w := newWeb(t, fenced, nil)
	w.origin("93.0.0.1", hello200, "api.test")
	for _, tc := range []struct {
		authority, host string
		status          string
	}{
		{"api.test", "", "200"},
		{"api.test", "api.test", "200"},
		{"", "api.test", "200"},
		{"evil.test", "", "421"},
		{"evil.test", "api.test", "400"},
		{"api.test", "evil.test", "400"},
		{"", "evil.test", "421"},
	} {
		c := tls.Client(w.guest.mustDial("93.0.0.1:443"), &tls.Config{ServerName: "api.test", RootCAs: w.trusted(), NextProtos: []string{"h2"}})
		if got := http2Status(t, c, tc.authority, tc.host); got != tc.status {
			t.Errorf("authority %q, host %q: %s, want %s", tc.authority, tc.host, got, tc.status)
		}
		if seen := w.requests(); (len(seen) == 1) != (tc.status == "200") {
			t.Errorf("authority %q, host %q: the origin saw %d requests", tc.authority, tc.host, len(seen))
		}
		c.Close()
	}
	if no := w.refused(); len(no) != 4 {
		t.Errorf("%d records: %+v", len(no), no)
	}
}

// http2Status sends one request with these fields and returns its status, in
// frames of its own: no client library sends such requests.
func http2Status(t *testing.T, c net.Conn, authority, host string) string {
	t.Helper()
	const headers, rst, settings, goAway = 1, 3, 4, 7
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/v1/"}, {":authority", authority}, {"host", host}} {
		if h[1] != "" {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
	}
	frame := func(kind, flags byte, stream uint32, body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(body))<<8|uint32(kind))
		return append(binary.BigEndian.AppendUint32(append(b, flags), stream), body...)
	}
	if _, err := c.Write(slices.Concat([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0, 0, nil), frame(headers, 5, 1, block.Bytes()))); err != nil {
		t.Fatal(err)
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])>>8)
		if _, err := io.ReadFull(c, body); err != nil {
			t.Fatal(err)
		}
		switch head[3] {
		case headers:
			fields, err := hpack.NewDecoder(4096, nil).DecodeFull(body)
			if err != nil || len(fields) == 0 {
				t.Fatal(fields, err)
			}
			return fields[0].Value
		case rst, goAway:
			return fmt.Sprintf("frame %d", head[3])
		}
	}
}

// A redirect leads the guest to another name: it follows it on a connection
// of its own, without what was added for the first.
func TestRedirect(t *testing.T) {
	w := newWeb(t, `{"allow":{"api.test":[{"transform":[{"headers":{"Authorization":"Bearer s3cret"}}]}],"plain.test":[]}}`, nil)
	w.origin("93.0.0.1", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://plain.test/", http.StatusFound)
	}, "api.test")
	w.origin("93.0.0.2", hello200, "plain.test")
	c := w.client("93.0.0.1", false)
	c.CheckRedirect = nil
	addrs := map[string]string{"api.test:443": "93.0.0.1:443", "plain.test:443": "93.0.0.2:443"}
	c.Transport.(*http.Transport).DialContext = func(_ context.Context, _, addr string) (net.Conn, error) { return w.guest.dial(addrs[addr]) }
	res, body := w.do(c, "GET", "https://api.test/", nil)
	seen := w.requests()
	if res.StatusCode != 200 || body != "hello plain.test /" || len(seen) != 2 || seen[0].Header.Get("Authorization") == "" || seen[1].Header.Get("Authorization") != "" {
		t.Errorf("%d %q; the origins saw %+v", res.StatusCode, body, seen)
	}
}
