package netstack

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// What the server denies stays closed under every policy: the name, its
// aliases, addresses, and a TLS connection that names it.
func TestServerDenies(t *testing.T) {
	o := newOutside()
	var err error
	if o.deny, err = egress.ParseDenyList("evil.test,*.evil.test,93.0.9.0/24"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.TLS.ServerName) }))
	defer srv.Close()
	o.route("93.0.0.1:443", srv.Listener.Addr().String())
	o.route("93.0.9.9:80", serve(t, echo))
	for _, z := range []string{
		"evil.test. 1 IN A 93.0.0.1", "a.b.evil.test. 1 IN A 93.0.0.1", "good.test. 1 IN A 93.0.0.1",
		"alias.test. 1 IN CNAME cdn.evil.test.", "cdn.evil.test. 1 IN A 93.0.0.1", "leads.test. 1 IN A 93.0.9.9",
	} {
		o.record(t, z)
	}
	for name, p := range map[string]egress.Policy{
		"allow-all": egress.AllowAll(),
		"custom":    policy(t, `{"allow":["*"],"subnets":{"allow":["93.0.0.0/16","93.0.9.9/32"]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			s, g := newPair(t, o, p)
			for _, denied := range []string{"evil.test", "EVIL.test", "a.b.evil.test", "alias.test", "leads.test"} {
				if m := g.lookup("udp", denied, dns.TypeA); len(m.Answer) != 0 {
					t.Errorf("%s: %v", denied, m.Answer)
				}
			}
			if m := g.lookup("udp", "good.test", dns.TypeA); len(m.Answer) != 1 {
				t.Errorf("good.test: %v", m)
			}
			if _, err := g.dial("93.0.9.9:80"); err == nil {
				t.Error("connected to a denied address")
			}
			for server, ok := range map[string]bool{"good.test": true, "x.evil.test": false, "evil.test": false} {
				c := tls.Client(g.mustDial("93.0.0.1:443"), &tls.Config{ServerName: server, InsecureSkipVerify: true})
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				if err := c.Handshake(); (err == nil) != ok {
					t.Errorf("TLS for %q: %v", server, err)
				}
				c.Close()
			}
			n := 0
			for _, d := range decisions(s) {
				if strings.HasPrefix(d.Rule, "server denies ") && !d.Allowed && d.Reason != "" {
					n++
				}
			}
			if n != 8 {
				t.Errorf("%d refusals of the server's are recorded: %+v", n, decisions(s))
			}
		})
	}
}
