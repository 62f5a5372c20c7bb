package netstack

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

// localTTL is the TTL, in seconds, of the answers made here.
const localTTL = 60

// passedTypes are asked upstream; all others are answered as "no such
// record". AAAA is among the others because the guest has no IPv6, HTTPS and
// SVCB because they carry addresses and keys that hide server names.
var passedTypes = map[uint16]bool{
	dns.TypeA: true, dns.TypeCNAME: true, dns.TypeTXT: true, dns.TypeMX: true, dns.TypeSRV: true, dns.TypePTR: true,
	dns.TypeNS: true, dns.TypeSOA: true, dns.TypeCAA: true, dns.TypeNAPTR: true, dns.TypeSPF: true, dns.TypeTLSA: true, dns.TypeSSHFP: true,
}

// refusedTypes ask for more than one kind of record.
var refusedTypes = map[uint16]bool{dns.TypeANY: true, dns.TypeAXFR: true, dns.TypeIXFR: true, dns.TypeMAILA: true, dns.TypeMAILB: true}

// refuseQuery records a query that no policy allows.
func (d *resolver) refuseQuery(q dns.Question) {
	query := dns.Type(q.Qtype).String()
	if q.Qclass != dns.ClassINET {
		query = dns.Class(q.Qclass).String() + " " + query
	}
	d.s.judge.Record(egress.Decision{Name: egress.NormalName(q.Name), Proto: egress.DNS, Query: query},
		egress.Verdict{Rule: "dns query", Reason: "the DNS server of a sandbox answers no queries of this type"})
}

// handle answers one query; nil means that it deserves no answer.
func (d *resolver) handle(query []byte, overUDP bool) []byte {
	req := new(dns.Msg)
	if err := req.Unpack(query); err != nil {
		if len(query) < 12 || query[2]&0x80 != 0 {
			return nil
		}
		bad := new(dns.Msg)
		bad.Id, bad.Response, bad.Rcode = uint16(query[0])<<8|uint16(query[1]), true, dns.RcodeFormatError
		return pack(bad)
	}
	if req.Response {
		return nil
	}
	ctx, cancel := context.WithTimeout(d.s.ctx, queryTimeout)
	defer cancel()
	resp := d.answer(ctx, req)
	size := dns.MaxMsgSize
	if overUDP {
		size = dns.MinMsgSize
	}
	if opt := req.IsEdns0(); opt != nil {
		if overUDP {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxQueryBytes)
		}
		addOPT(resp)
	}
	resp.Truncate(size)
	out := pack(resp)
	d.s.egress.Add(uint64(len(query)))
	d.s.ingress.Add(uint64(len(out)))
	if len(req.Question) == 1 {
		d.s.judge.LookedUp(req.Question[0].Name, len(out), len(query), len(resp.Answer) > 0)
	}
	return out
}

func pack(m *dns.Msg) []byte {
	b, err := m.Pack()
	if err == nil {
		return b
	}
	// What came from upstream cannot be written again: not our guest's fault.
	fail := &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Rcode: dns.RcodeServerFailure}, Question: m.Question}
	if b, err = fail.Pack(); err != nil {
		return nil
	}
	return b
}

// addOPT puts an OPT record before what explain may have added.
func addOPT(m *dns.Msg) {
	opt := m.IsEdns0()
	if opt == nil {
		opt = &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		m.Extra = append(m.Extra, opt)
	}
	opt.SetUDPSize(udpAnswer)
}

// explain tells a client that understands it why (RFC 8914, "Blocked").
func explain(req, resp *dns.Msg, reason string) {
	if req.IsEdns0() == nil {
		return
	}
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked, ExtraText: reason})
	resp.Extra = append(resp.Extra, opt)
}

func (d *resolver) answer(ctx context.Context, req *dns.Msg) *dns.Msg {
	resp := new(dns.Msg)
	resp.SetReply(req)
	resp.RecursionAvailable, resp.Compress = true, true
	rcode := func(c int) *dns.Msg {
		resp.Rcode = c
		return resp
	}
	switch {
	case req.Opcode != dns.OpcodeQuery:
		return rcode(dns.RcodeNotImplemented)
	case len(req.Question) != 1:
		return rcode(dns.RcodeFormatError)
	}
	q := req.Question[0]
	if q.Qclass != dns.ClassINET || refusedTypes[q.Qtype] {
		d.refuseQuery(q)
		return rcode(dns.RcodeRefused)
	}
	if d.answerLocally(q, resp) {
		return resp
	}
	// A name that is not allowed does not exist: clients fail at once and do
	// not ask again, which they do after REFUSED.
	if v := d.s.judge.Resolve(q.Name, dns.Type(q.Qtype).String()); !v.Allowed {
		d.s.log.Debug("refused look-up", "name", q.Name, "rule", v.Rule)
		explain(req, resp, v.Reason)
		return rcode(dns.RcodeNameError)
	}
	if !passedTypes[q.Qtype] {
		return resp
	}
	return d.ask(ctx, q, req, resp)
}

// ask passes an allowed question on and its answer back.
func (d *resolver) ask(ctx context.Context, q dns.Question, req, resp *dns.Msg) *dns.Msg {
	up := new(dns.Msg)
	up.SetQuestion(q.Name, q.Qtype)
	up.SetEdns0(udpAnswer, false)
	got, err := d.s.cfg.Upstream.Exchange(ctx, up)
	if err != nil {
		d.s.log.Log(ctx, d.s.failedDNS.level(), "look-up failed", "name", q.Name, "err", err)
		resp.Rcode = dns.RcodeServerFailure
		return resp
	}
	switch got.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
		resp.Rcode = got.Rcode
	default:
		resp.Rcode = dns.RcodeServerFailure
		return resp
	}
	if reason := d.filter(q.Name, got, resp); reason != "" && len(resp.Answer) == 0 {
		explain(req, resp, reason)
	}
	return resp
}

// filter copies what the guest may see. Addresses must belong to the name
// asked for, by a chain of CNAMEs, and be reachable; glue is left out, since
// the guest resolves such names itself, each judged on its own.
func (d *resolver) filter(name string, got, resp *dns.Msg) (refused string) {
	chain := []string{egress.NormalName(name)}
	for range got.Answer { // the records may come in any order
		grown := false
		for _, rr := range got.Answer {
			if c, ok := rr.(*dns.CNAME); ok && slices.Contains(chain, egress.NormalName(c.Hdr.Name)) && !slices.Contains(chain, egress.NormalName(c.Target)) {
				chain, grown = append(chain, egress.NormalName(c.Target)), true
			}
		}
		if !grown || len(chain) > 16 {
			break
		}
	}
	for _, alias := range chain[1:] {
		if v := d.s.judge.Alias(name, alias); !v.Allowed {
			return v.Reason
		}
	}
	for _, rr := range got.Answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || !passedTypes[h.Rrtype] || !slices.Contains(chain, egress.NormalName(h.Name)) {
			continue
		}
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			if v := d.s.judge.Answer(name, addr, time.Duration(h.Ttl)*time.Second); !v.Allowed {
				refused = v.Reason
				d.s.log.Log(d.s.ctx, d.s.filteredDNS.level(), "left an address out of a DNS answer", "name", name, "addr", addr, "reason", v.Reason)
				continue
			}
		}
		resp.Answer = append(resp.Answer, rr)
	}
	for _, rr := range got.Ns {
		if _, ok := rr.(*dns.SOA); ok { // says how long "no" may be cached
			resp.Ns = append(resp.Ns, rr)
		}
	}
	return refused
}

// answerLocally answers what concerns the guest itself and the addresses
// that nobody outside should be asked about.
func (d *resolver) answerLocally(q dns.Question, resp *dns.Msg) bool {
	name := egress.NormalName(q.Name)
	switch {
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		d.local(q, resp, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	case name == "":
		return false
	case name == egress.NormalName(d.s.cfg.Hostname):
		d.local(q, resp, driver.GuestAddr)
	case strings.HasSuffix(name, ".in-addr.arpa"):
		// The host's resolvers know names of its neighbourhood.
		if a, ok := reverseAddr(name); !ok || egress.Public(a) {
			return false
		}
		resp.Rcode = dns.RcodeNameError
	default:
		return false
	}
	return true
}

func (d *resolver) local(q dns.Question, resp *dns.Msg, a netip.Addr) {
	if q.Qtype == dns.TypeA {
		resp.Answer = append(resp.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: localTTL}, A: net.IP(a.AsSlice())})
	}
}

// reverseAddr is the address in d.c.b.a.in-addr.arpa. A name for a whole
// network, with fewer numbers, stands for its first address.
func reverseAddr(name string) (netip.Addr, bool) {
	labels := strings.Split(strings.TrimSuffix(name, ".in-addr.arpa"), ".")
	for len(labels) < 4 {
		labels = append([]string{"0"}, labels...)
	}
	slices.Reverse(labels)
	a, err := netip.ParseAddr(strings.Join(labels, "."))
	return a, err == nil && a.Is4()
}
