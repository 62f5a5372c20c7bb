package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/intercept"
)

// firstWords is how long a guest may be silent on a connection that is dialled
// only once it is known what for.
const firstWords = 60 * time.Second

// interceptor returns the proxy that connections are opened in, made at the
// first call; nil after Close.
func (s *Stack) interceptor() *intercept.Proxy {
	ca, err := s.CA()
	if err != nil {
		s.log.Error("intercept connections", "err", err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxy == nil && !s.closed {
		s.proxy = intercept.New(intercept.Config{
			CA: ca, Policy: s.judge.Policy, Record: s.judge.Record, Roots: s.cfg.Roots, Token: s.cfg.Token, Logger: s.log,
			Recheck: func(addr netip.AddrPort, name string) egress.Verdict {
				return s.judge.Recheck(egress.TCP, addr, []string{name})
			},
			DialForward: s.dialForward,
		})
	}
	return s.proxy
}

// CA is the authority of this sandbox.
func (s *Stack) CA() (*intercept.CA, error) { return s.ca() }

// decide says what becomes of a connection that turns out to be what: nil to
// pass it on as it is, errTaken to have it intercepted, else to end it. The
// answer holds until the policy changes, which ends what it then forbids.
func (s *Stack) decide(f *flow, what speech) error {
	v := f.verdict
	strict := len(v.Names) > 0
	if what.kind == speechTLS { // the server may deny the name in any case
		if v := s.judge.ServerName(v, f.dst, what.server); !v.Allowed {
			return fmt.Errorf("%w: %s", errAborted, v.Reason)
		}
	}
	name := egress.NormalName(what.server)
	return s.flows.settle(func() error {
		p := s.judge.Policy()
		switch {
		case what.kind == speechTLS:
			if strict || slices.Contains(v.Resolved, name) {
				f.verdict.Resolved = []string{name}
				f.meter.Rename(name)
			}
			if p.RulesOfAny(f.verdict.Resolved) && f.verdict.Resolved[0] == name {
				f.server = name
				return errTaken
			}
		case what.kind == speechHTTP && (strict || s.judge.DeniesNames() || p.RulesOfAny(v.Resolved)):
			return errTaken
		case strict && p.RulesOfAny(v.Names):
			no := s.judge.Record(egress.Decision{Name: v.Names[len(v.Names)-1], Addr: f.dst, Proto: egress.TCP}, egress.Verdict{
				Rule:   "rules",
				Reason: "a name with rules is reached by HTTP and TLS alone, and this connection is neither",
			})
			return fmt.Errorf("%w: %s", errAborted, no.Reason)
		}
		f.raw = true
		return nil
	})
}

// listenFirst reads the guest's first bytes before anything is dialled, for
// rules may answer in the destination's place. It returns nil where the
// connection is to be intercepted, and else the destination's side.
func (s *Stack) listenFirst(f *flow, in *guestConn) (out net.Conn, held []byte, err error) {
	f.whenAborted(in.ep.Abort)
	if err := in.SetReadDeadline(time.Now().Add(firstWords)); err != nil {
		return nil, nil, err
	}
	buf := make([]byte, 16<<10)
	for what := (speech{}); what.kind == speechUnknown; {
		n, err := in.Read(buf)
		s.count(f, 0, n)
		held = append(held, buf[:n]...)
		if n == 0 && err != nil {
			return nil, nil, fmt.Errorf("wait for the guest's first bytes: %w", err)
		}
		if what = listen(held, f.dst.Port()); what.kind == speechUnknown {
			continue
		}
		if err := in.SetReadDeadline(time.Time{}); err != nil {
			return nil, nil, err
		}
		if err := s.decide(f, what); err != nil {
			return nil, held, err
		}
	}
	if out, err = s.dialOut(f.ctx, "tcp", f.dst); err != nil {
		return nil, nil, err
	}
	if _, err := out.Write(held); err != nil {
		out.Close()
		return nil, nil, err
	}
	return out, nil, nil
}

// intercept serves a connection of which held has been read already, by the
// open connection out, where not nil, and others like it.
func (s *Stack) intercept(f *flow, in *guestConn, out net.Conn, held []byte) {
	defer in.Close()
	p := s.interceptor()
	if p == nil {
		in.ep.Abort()
		return
	}
	f.whenAborted(in.ep.Abort)
	v, _ := s.flows.verdictOf(f)
	names, strict := v.Names, len(v.Names) > 0
	if !strict {
		names = v.Resolved
	}
	u := &upstreams{s: s, f: f, ready: out}
	defer u.close()
	p.Serve(intercept.Conn{
		Guest: &heldConn{guestConn: in, s: s, f: f, held: held},
		Dst:   f.dst, Server: f.server, Names: names, Strict: strict, Dial: u.dial,
	})
}

// heldConn is the guest's side with the bytes that were read before, counted.
type heldConn struct {
	*guestConn
	s    *Stack
	f    *flow
	held []byte // for the one reader
}

func (c *heldConn) Read(b []byte) (int, error) {
	if len(c.held) > 0 {
		n := copy(b, c.held)
		c.held = c.held[n:]
		return n, nil
	}
	n, err := c.guestConn.Read(b)
	c.s.count(c.f, 0, n)
	return n, err
}

func (c *heldConn) Write(b []byte) (int, error) {
	n, err := c.guestConn.Write(b)
	c.s.count(c.f, n, 0)
	return n, err
}

var errTooMany = errors.New("the sandbox has too many connections")

// dialForward connects to the host of a rule's forwardURL.
func (s *Stack) dialForward(ctx context.Context, host string, port uint16) (net.Conn, error) {
	addrs, err := s.lookUp(ctx, host)
	if err != nil {
		return nil, err
	}
	var last error
	for _, a := range addrs {
		dst := netip.AddrPortFrom(a, port)
		if v := s.judge.Forward(host, dst); !v.Allowed {
			last = errors.New(v.Reason)
			continue
		}
		// Its verdict stays empty: it is the policy's own connection, which
		// ends with the request.
		f := s.flows.add(s.ctx, egress.TCP, dst, maxTCP)
		if f == nil {
			return nil, errTooMany
		}
		c, err := s.dialFlow(ctx, f)
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, last
}

// lookUp asks for the addresses of a name for ourselves.
func (s *Stack) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(host), dns.TypeA)
	q.SetEdns0(udpAnswer, false)
	r, err := s.cfg.Upstream.Exchange(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	var out []netip.Addr
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			if addr, ok := netip.AddrFromSlice(a.A.To4()); ok {
				out = append(out, addr)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("look up %s: it has no IPv4 address", host)
	}
	return out, nil
}
