package netstack

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// scripted is a resolver outside that answers what it was told to.
type scripted []byte

func (s scripted) Exchange(context.Context, *dns.Msg) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(s); err != nil {
		return nil, errors.New("broken")
	}
	return m, nil
}

// FuzzAnswer: whatever a resolver outside answers, the guest sees well-formed
// messages alone, with no address in them that it must not reach.
func FuzzAnswer(f *testing.F) {
	for _, lines := range [][]string{
		{"good.test. 1 IN A 93.0.0.1", "good.test. 1 IN A 10.0.0.1"},
		{"good.test. 1 IN CNAME a.test.", "a.test. 1 IN CNAME good.test.", "a.test. 1 IN A 127.0.0.1"},
		{"other.test. 1 IN A 93.0.0.1", "good.test. 1 IN TXT x", "good.test. 1 IN AAAA ::1", "good.test. 1 IN HTTPS 1 . ipv4hint=10.0.0.1"},
	} {
		m := new(dns.Msg)
		for _, l := range lines {
			rr, err := dns.NewRR(l)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true, uint16(1))
	}
	o := newOutside()
	s, _ := newPair(f, o, policy(f, `{"allow":["good.test"]}`))
	d := &resolver{s: s, slots: make(chan struct{}, 1)}
	f.Fuzz(func(t *testing.T, answer []byte, udp bool, qtype uint16) {
		s.cfg.Upstream = scripted(answer)
		q := new(dns.Msg)
		q.SetQuestion("good.test.", qtype)
		query, err := q.Pack()
		if err != nil {
			t.Skip()
		}
		r := new(dns.Msg)
		out := d.handle(query, udp)
		if err := r.Unpack(out); err != nil || !r.Response || udp && len(out) > dns.MinMsgSize {
			t.Fatalf("answer of %d bytes: %x: %v", len(out), out, err)
		}
		for _, rr := range append(append(r.Answer, r.Ns...), r.Extra...) {
			a, ok := rr.(*dns.A)
			switch {
			case ok:
				addr, _ := netip.AddrFromSlice(a.A.To4())
				if !egress.Public(addr) {
					t.Errorf("the guest sees %s", rr)
				}
			case rr.Header().Rrtype == dns.TypeAAAA, rr.Header().Rrtype == dns.TypeHTTPS, rr.Header().Rrtype == dns.TypeSVCB:
				t.Errorf("the guest sees %s", rr)
			}
		}
	})
}
