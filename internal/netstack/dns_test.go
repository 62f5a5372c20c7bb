package netstack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// answers are the records of an answer, without TTLs, sorted.
func answers(m *dns.Msg) []string {
	var out []string
	for _, rr := range m.Answer {
		f := strings.Fields(rr.String())
		out = append(out, strings.Join(append(f[:1:1], f[3:]...), " "))
	}
	slices.Sort(out)
	return out
}

func TestDNS(t *testing.T) {
	o := newOutside()
	for _, z := range []string{
		"a.test. 1 IN A 93.0.0.1", "a.test. 1 IN A 93.0.0.2", "a.test. 1 IN AAAA 2606::1", "a.test. 60 IN TXT hello",
		"alias.test. 60 IN CNAME cdn.other.test.", "cdn.other.test. 60 IN A 93.0.0.3",
		"mail.test. 60 IN MX 10 mx.mail.test.", "_x._tcp.srv.test. 60 IN SRV 0 0 80 a.test.",
		"1.0.0.93.in-addr.arpa. 60 IN PTR a.test.", "1.0.0.10.in-addr.arpa. 60 IN PTR secret.corp.",
		"rebind.test. 0 IN A 93.0.0.1", "rebind.test. 0 IN A 127.0.0.1", "rebind.test. 0 IN A 169.254.169.254", "rebind.test. 0 IN A 10.0.0.1",
		"rebind.test. 0 IN A 93.0.0.9", "rebind.test. 0 IN A 10.88.0.1", "inside.test. 0 IN A 10.0.0.1",
	} {
		o.record(t, z)
	}
	o.host = []netip.Addr{netip.MustParseAddr("93.0.0.9")}
	_, g := newPair(t, o, egress.AllowAll())
	for _, tc := range []struct {
		name  string
		typ   uint16
		rcode int
		want  []string
	}{
		{"a.test", dns.TypeA, 0, []string{"a.test. A 93.0.0.1", "a.test. A 93.0.0.2"}},
		{"A.TEST", dns.TypeTXT, dns.RcodeNameError, nil}, // the test's zone knows case
		{"a.test", dns.TypeTXT, 0, []string{`a.test. TXT "hello"`}},
		{"a.test", dns.TypeAAAA, 0, nil}, {"a.test", dns.TypeHTTPS, 0, nil}, {"a.test", 999, 0, nil},
		{"a.test", dns.TypeANY, dns.RcodeRefused, nil}, {"a.test", dns.TypeAXFR, dns.RcodeRefused, nil},
		{"alias.test", dns.TypeA, 0, []string{"alias.test. CNAME cdn.other.test.", "cdn.other.test. A 93.0.0.3"}},
		{"mail.test", dns.TypeMX, 0, []string{"mail.test. MX 10 mx.mail.test."}},
		{"_x._tcp.srv.test", dns.TypeSRV, 0, []string{"_x._tcp.srv.test. SRV 0 0 80 a.test."}},
		{"1.0.0.93.in-addr.arpa", dns.TypePTR, 0, []string{"1.0.0.93.in-addr.arpa. PTR a.test."}},
		{"1.0.0.10.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, nil}, {"1.0.88.10.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, nil},
		{"none.test", dns.TypeA, dns.RcodeNameError, nil}, {"broken", dns.TypeA, dns.RcodeServerFailure, nil},
		{"rebind.test", dns.TypeA, 0, []string{"rebind.test. A 93.0.0.1"}}, {"inside.test", dns.TypeA, 0, nil},
		{"localhost", dns.TypeA, 0, []string{"localhost. A 127.0.0.1"}}, {"localhost", dns.TypeAAAA, 0, nil},
		{"x.localhost", dns.TypeA, 0, []string{"x.localhost. A 127.0.0.1"}}, {"Box", dns.TypeA, 0, []string{"Box. A 10.88.0.2"}},
	} {
		for _, network := range []string{"udp", "tcp"} {
			r := g.lookup(network, tc.name, tc.typ)
			if got := answers(r); r.Rcode != tc.rcode || !slices.Equal(got, tc.want) {
				t.Errorf("%s %s over %s: %s %q, want %s %q", tc.name, dns.TypeToString[tc.typ], network,
					dns.RcodeToString[r.Rcode], got, dns.RcodeToString[tc.rcode], tc.want)
			}
		}
	}
	for _, q := range o.asked() {
		if strings.Contains(q, "localhost") || strings.Contains(q, "AAAA") || strings.Contains(q, "10.in-addr") || strings.HasPrefix(strings.ToLower(q), "box") {
			t.Errorf("the query %q left", q)
		}
	}
	chaos := new(dns.Msg)
	chaos.SetQuestion("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	if r := g.exchange("udp", chaos); r.Rcode != dns.RcodeRefused {
		t.Errorf("class CHAOS: %s", dns.RcodeToString[r.Rcode])
	}
	update := new(dns.Msg)
	update.SetUpdate("a.test.")
	if r := g.exchange("udp", update); r.Rcode != dns.RcodeNotImplemented {
		t.Errorf("UPDATE: %s", dns.RcodeToString[r.Rcode])
	}
}

func TestDNSUnderPolicies(t *testing.T) {
	o := newOutside()
	o.record(t, "good.test. 1 IN A 93.0.0.1")
	o.record(t, "sub.wild.test. 1 IN CNAME bad.test.")
	o.record(t, "bad.test. 1 IN A 93.0.0.2")
	up := serve(t, echo)
	for _, a := range []string{"93.0.0.1:9999", "93.0.0.2:9999", "93.0.0.3:9999"} {
		o.route(a, up)
	}
	s, g := newPair(t, o, egress.DenyAll())
	for _, n := range []string{"good.test", "s3cret.bad.test"} {
		for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeMX} {
			if r := g.lookup("udp", n, typ); r.Rcode != dns.RcodeNameError || len(r.Answer) != 0 {
				t.Errorf("deny-all: %s %v", n, r)
			}
		}
	}
	s.SetPolicy(policy(t, `{"allow":["good.test","*.wild.test"]}`))
	for _, n := range []string{"bad.test", "x.good.test", "wild.test", "a.b.bad.test", strings.Repeat("x", 63) + ".bad.test"} {
		r := g.lookup("tcp", n, dns.TypeTXT)
		if r.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %v", n, r)
		}
		if ede := blockedReason(r); !strings.Contains(ede, "allow") {
			t.Errorf("%s: reason %q", n, ede)
		}
	}
	if q := o.asked(); len(q) != 0 {
		t.Fatalf("queries left: %q", q)
	}
	if _, err := g.dial("93.0.0.1:9999"); err == nil {
		t.Error("an address that no name was resolved to is reachable")
	}
	if r := g.lookup("udp", "Good.Test", dns.TypeAAAA); r.Rcode != 0 {
		t.Errorf("AAAA of an allowed name: %v", r)
	}
	g.lookup("udp", "good.test", dns.TypeA)
	roundTrip(t, g.mustDial("93.0.0.1:9999"))
	// A CNAME to a name that is not allowed is the allowed name's business.
	if r := g.lookup("udp", "sub.wild.test", dns.TypeA); len(r.Answer) != 2 {
		t.Errorf("%v", r)
	}
	roundTrip(t, g.mustDial("93.0.0.2:9999"))
	if _, err := g.dial("93.0.0.3:9999"); err == nil {
		t.Error("a literal is reachable")
	}
}

func blockedReason(m *dns.Msg) string {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return e.ExtraText
			}
		}
	}
	return ""
}

// One answer has unrelated records in it: only the chain counts.
func TestDNSIgnoresUnrelatedRecords(t *testing.T) {
	o := newOutside()
	a, _ := dns.NewRR("good.test. 1 IN A 93.0.0.1")
	b, _ := dns.NewRR("victim.test. 1 IN A 93.0.0.2")
	o.records["good.test. A"] = []dns.RR{b, a}
	s, g := newPair(t, o, policy(t, `{"allow":["good.test"]}`))
	if got := answers(g.lookup("udp", "good.test", dns.TypeA)); !slices.Equal(got, []string{"good.test. A 93.0.0.1"}) {
		t.Errorf("%q", got)
	}
	if n := s.judge.NamesOf(netip.MustParseAddr("93.0.0.2")); n != nil {
		t.Errorf("remembered %q", n)
	}
}

func TestDNSSizes(t *testing.T) {
	o := newOutside()
	for i := range 200 {
		rr, _ := dns.NewRR("many.test. 1 IN A 93.0.1." + itoa(i))
		o.records["many.test. A"] = append(o.records["many.test. A"], rr)
	}
	_, g := newPair(t, o, egress.AllowAll())
	q := new(dns.Msg)
	q.SetQuestion("many.test.", dns.TypeA)
	size := func(m *dns.Msg) int {
		m.Compress = true
		return m.Len()
	}
	if r := g.exchange("udp", q); !r.Truncated || size(r) > 512 {
		t.Errorf("without EDNS: truncated %v, %d bytes", r.Truncated, size(r))
	}
	q.SetEdns0(1232, false)
	if r := g.exchange("udp", q); !r.Truncated || size(r) > 1232 || len(r.Answer) < 20 {
		t.Errorf("with EDNS: truncated %v, %d bytes, %d answers", r.Truncated, size(r), len(r.Answer))
	}
	if r := g.exchange("tcp", q); r.Truncated || len(r.Answer) != 200 {
		t.Errorf("over TCP: truncated %v, %d answers", r.Truncated, len(r.Answer))
	}
}

func itoa(i int) string { return netip.AddrFrom4([4]byte{0, 0, 0, byte(i)}).String()[6:] }

// Rotating addresses: each answer is another address with TTL 1, and one
// client keeps using the first.
func TestDNSRotation(t *testing.T) {
	o := newOutside()
	up := serve(t, echo)
	s, g := newPair(t, o, policy(t, `{"allow":["rotate.test"]}`))
	for i := range 12 {
		addr := "93.0.2." + itoa(i)
		o.route(addr+":9999", up)
		o.mu.Lock()
		o.records["rotate.test. A"] = nil
		o.mu.Unlock()
		o.record(t, "rotate.test. 1 IN A "+addr)
		g.lookup("udp", "rotate.test", dns.TypeA)
		roundTrip(t, g.mustDial(addr+":9999"))
		roundTrip(t, g.mustDial("93.0.2.0:9999"))
	}
	for _, x := range s.Log().Since(0).Records {
		if !x.Allowed {
			t.Errorf("refused: %+v", x)
		}
	}
}

func TestUpstream(t *testing.T) {
	for in, want := range map[string]string{"9.9.9.9": "9.9.9.9:53", "9.9.9.9:5353": "9.9.9.9:5353", "::1": "[::1]:53", "[::1]:54": "[::1]:54", "dns.corp": "dns.corp:53", "dns.corp:55": "dns.corp:55"} {
		if got, err := serverAddr(in); err != nil || got != want {
			t.Errorf("serverAddr(%q) = %q, %v", in, got, err)
		}
	}
	for _, bad := range []string{"a b", "x:0", "x:port", "http://x/dns"} {
		if _, err := NewUpstream(bad); err == nil || !strings.Contains(err.Error(), "GLOVEBOX_DNS") {
			t.Errorf("NewUpstream(%q): %v", bad, err)
		}
	}
	var servers []string
	for _, rcode := range []int{dns.RcodeServerFailure, dns.RcodeSuccess} {
		servers = append(servers, dnsServer(t, rcode))
	}
	u, err := NewUpstream(strings.Join(servers, ", "))
	if err != nil {
		t.Fatal(err)
	}
	q := new(dns.Msg)
	q.SetQuestion("big.test.", dns.TypeTXT)
	r, err := u.Exchange(t.Context(), q)
	if err != nil || len(r.Answer) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
}

// dnsServer answers big.test with rcode; over UDP it says "truncated".
func dnsServer(t *testing.T, rcode int) string {
	t.Helper()
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg)
		r.SetRcode(q, rcode)
		if w.RemoteAddr().Network() == "udp" {
			r.Truncated = true
		} else if rcode == 0 {
			rr, _ := dns.NewRR(`big.test. 1 IN TXT "x"`)
			r.Answer = append(r.Answer, rr)
		}
		_ = w.WriteMsg(r)
	})
	var addr string
	for {
		udp := &dns.Server{Addr: "127.0.0.1:0", Net: "udp", Handler: h}
		startDNS(t, udp)
		addr = udp.PacketConn.LocalAddr().String()
		tcp := &dns.Server{Addr: addr, Net: "tcp", Handler: h}
		if startDNS(t, tcp) {
			return addr
		}
	}
}

func startDNS(t *testing.T, s *dns.Server) bool {
	up, end := make(chan bool, 2), make(chan struct{})
	s.NotifyStartedFunc = func() { up <- true }
	go func() {
		defer close(end)
		_ = s.ListenAndServe()
		up <- false
	}()
	ok := <-up
	t.Cleanup(func() {
		if ok {
			_ = s.Shutdown()
		}
		<-end
	})
	return ok
}

func TestDNSFloodIsBounded(t *testing.T) {
	o := newOutside()
	o.record(t, "a.test. 1 IN A 93.0.0.1")
	s, g := newPair(t, o, egress.AllowAll())
	c := g.dialUDP("10.88.0.1:53")
	q := new(dns.Msg)
	q.SetQuestion("a.test.", dns.TypeA)
	b, _ := q.Pack()
	for range 5000 {
		_, _ = c.Write(b)
		_, _ = c.Write(b[:7])
	}
	if r := g.lookup("tcp", "a.test", dns.TypeA); len(r.Answer) != 1 {
		t.Errorf("after a flood: %v", r)
	}
	start := time.Now()
	s.Close()
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("Close took %v", d)
	}
}

func FuzzDNS(f *testing.F) {
	q := new(dns.Msg)
	q.SetQuestion("good.test.", dns.TypeA)
	q.SetEdns0(4096, true)
	b, _ := q.Pack()
	f.Add(b, true)
	f.Add(b[:11], false)
	f.Add([]byte{}, true)
	o := newOutside()
	o.record(f, "good.test. 1 IN A 93.0.0.1")
	s, _ := newPair(f, o, policy(f, `{"allow":["good.test"]}`))
	d := &resolver{s: s, slots: make(chan struct{}, 1)}
	f.Fuzz(func(t *testing.T, query []byte, udp bool) {
		out := d.handle(query, udp)
		if out == nil {
			return
		}
		r := new(dns.Msg)
		if err := r.Unpack(out); err != nil || !r.Response {
			t.Errorf("answer %x: %v", out, err)
		}
		for _, asked := range o.asked() {
			if !strings.EqualFold(strings.Fields(asked)[0], "good.test.") {
				t.Errorf("the query %q left", asked)
			}
		}
		o.mu.Lock()
		o.queries = nil
		o.mu.Unlock()
	})
}
