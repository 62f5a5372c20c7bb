//go:build linux

package outside

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// Name gives name addresses: one answer holds one of them, in turn, with TTL 0.
// "CNAME other." is an alias, "TXT words" a text.
func (o *Net) Name(name string, answers ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records[dns.Fqdn(strings.ToLower(name))] = answers
}

// Queries are the names that were asked for since the last call, with types.
func (o *Net) Queries() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.queries
	o.queries = nil
	return out
}

// serve answers DNS, HTTP, HTTPS, and echoes TCP at port 9999 and UDP at 443,
// at every address.
func (o *Net) serve() error {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)) // an answer comes from the address that was asked
		}), err)
	}}
	ctx := context.Background()
	var listeners [4]net.Listener
	for i, port := range []int{53, 80, 443, 9999} {
		var err error
		if listeners[i], err = lc.Listen(ctx, "tcp4", fmt.Sprintf("0.0.0.0:%d", port)); err != nil {
			return err
		}
	}
	questions, err := lc.ListenPacket(ctx, "udp4", "0.0.0.0:53")
	if err != nil {
		return err
	}
	quic, err := lc.ListenPacket(ctx, "udp4", "0.0.0.0:443")
	if err != nil {
		return err
	}
	go func() { _ = (&dns.Server{PacketConn: questions, Handler: o}).ActivateAndServe() }()
	go func() { _ = (&dns.Server{Listener: listeners[0], Handler: o}).ActivateAndServe() }()
	go func() { _ = http.Serve(listeners[1], http.HandlerFunc(answer)) }()
	secure := &http.Server{
		Handler: http.HandlerFunc(answer), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: o.ca.certificate},
	}
	go func() { _ = secure.ServeTLS(listeners[2], "", "") }()
	go echoTCP(listeners[3])
	go echoUDP(quic.(*net.UDPConn))
	return nil
}

// zeros answers with as many bytes as size says.
func zeros(w http.ResponseWriter, size string) {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", size)
	for piece := make([]byte, 256<<10); n > 0; n -= int64(len(piece)) {
		if _, err := w.Write(piece[:min(n, int64(len(piece)))]); err != nil {
			return
		}
	}
}

// answer says who was asked for what: below /echo all of it, /zeros/N is N bytes, and for a Git
// client that has the password a repository with one branch.
func answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/zeros/"):
		zeros(w, strings.TrimPrefix(r.URL.Path, "/zeros/"))
		return
	case strings.HasPrefix(r.URL.Path, "/echo"):
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "host": r.Host, "uri": r.RequestURI, "proto": r.Proto, "headers": r.Header, "body": string(body)})
		return
	case strings.HasPrefix(r.URL.Path, "/redirect/"):
		http.Redirect(w, r, "https://"+strings.TrimPrefix(r.URL.Path, "/redirect/"), http.StatusFound)
		return
	case r.URL.Path == "/repo.git/info/refs":
		if user, password, _ := r.BasicAuth(); user != "x" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "%040d\trefs/heads/main\n", 7)
		return
	}
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	server := ""
	if r.TLS != nil {
		server = r.TLS.ServerName
	}
	fmt.Fprintf(w, "OUTSIDE %v host=%s sni=%s\n", at, r.Host, server)
}

func echoTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

func echoUDP(c *net.UDPConn) {
	b := make([]byte, 65536)
	for {
		n, from, err := dns.ReadFromSessionUDP(c, b)
		if err != nil {
			return
		}
		_, _ = dns.WriteToSessionUDP(c, b[:n], from)
	}
}

// ServeDNS implements dns.Handler.
func (o *Net) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	r := new(dns.Msg)
	r.SetReply(q)
	for _, question := range q.Question {
		o.mu.Lock()
		name := strings.ToLower(question.Name)
		o.queries = append(o.queries, dns.TypeToString[question.Qtype]+" "+name)
		o.fill(r, name, question)
		o.mu.Unlock()
	}
	_ = w.WriteMsg(r)
}

// fill adds the answer for name and, through aliases, those behind it. Held: mu.
func (o *Net) fill(r *dns.Msg, name string, q dns.Question) {
	for range 5 {
		answers, ok := o.records[name]
		if !ok || len(answers) == 0 {
			r.Rcode = dns.RcodeNameError
			return
		}
		a := answers[o.turn[name]%len(answers)]
		if q.Qtype == dns.TypeA || q.Qtype == dns.TypeTXT {
			o.turn[name]++
		}
		owner := name
		if name == strings.ToLower(q.Name) {
			owner = q.Name
		}
		target, alias := strings.CutPrefix(a, "CNAME ")
		text, isText := strings.CutPrefix(a, "TXT ")
		line := owner + " 0 IN A " + a
		switch {
		case alias:
			line = owner + " 0 IN CNAME " + target
		case isText:
			line = owner + " 0 IN TXT \"" + text + "\""
		case strings.Contains(a, ":"):
			line = owner + " 0 IN AAAA " + a
		}
		rr, err := dns.NewRR(line)
		if err == nil && (alias || rr.Header().Rrtype == q.Qtype) {
			r.Answer = append(r.Answer, rr)
		}
		if !alias {
			return
		}
		name = strings.ToLower(dns.Fqdn(target))
	}
}
