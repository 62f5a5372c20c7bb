package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Protocols that a Judge knows.
const (
	TCP = "tcp"
	UDP = "udp"
	DNS = "dns" // a look-up, and the addresses in its answer
)

// Verdict says whether something is allowed and why.
type Verdict struct {
	Allowed bool
	// Rule is what decided: "allow-all", "deny-all", "allow *.example.com",
	// "subnets.deny 10.0.0.0/8", or the name of a hard rule such as
	// "loopback", "host address", "private range".
	Rule string
	// Reason is a sentence for people.
	Reason string
	// Names are the allowed names that the address was given out for, when
	// the connection is allowed for their sake. A TLS connection may then
	// carry no other server name (Judge.ServerName).
	Names []string
	// Resolved are all names that the address was given out for, whatever
	// decided; Recheck wants them.
	Resolved []string
	// Seq of its record in the log; 0 where it was not recorded.
	Seq uint64
}

// about are the names that v is about, oldest first.
func (v Verdict) about() []string {
	if len(v.Names) > 0 {
		return v.Names
	}
	return v.Resolved
}

// Options of a Judge.
type Options struct {
	Policy Policy
	// Host is asked for the host's own addresses; nil means this host's.
	Host *HostAddrs
	// Deny are further ranges that no policy opens: the sandboxes' own
	// subnet, the control plane's.
	Deny []netip.Prefix
	// Server is what the server denies to all sandboxes.
	Server DenyList
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Judge applies the policy of one sandbox. Safe for concurrent use.
type Judge struct {
	host   *HostAddrs
	deny   []netip.Prefix
	server DenyList
	now    func() time.Time
	log    *Log

	mu     sync.Mutex // guards what follows
	policy Policy
	names  *names
	// packets holds when a refused packet of a kind was last recorded.
	packets map[packetKind]time.Time
}

// NewJudge returns a judge.
func NewJudge(o Options) *Judge {
	if o.Host == nil {
		o.Host = thisHost()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Judge{host: o.Host, deny: slices.Clone(o.Deny), server: o.Server, now: o.Now, log: NewLog(), policy: o.Policy, names: newNames(), packets: map[packetKind]time.Time{}}
}

// SetPolicy replaces the policy for every later verdict.
func (j *Judge) SetPolicy(p Policy) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.policy = p
}

// Policy is the one in force.
func (j *Judge) Policy() Policy {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.policy
}

// Resolve judges whether name may be looked up; query is the type asked for.
func (j *Judge) Resolve(name, query string) Verdict {
	name = NormalName(name)
	v, denied := j.server.name(name)
	if !denied {
		v = j.Policy().Resolve(name)
	}
	return j.Record(Decision{Name: name, Proto: DNS, Query: query}, v)
}

// Alias judges a name that an answer to a look-up of name leads on to. The
// policy has nothing to say about it: whoever is allowed a name is allowed
// what it stands for. Only a refusal is recorded.
func (j *Judge) Alias(name, alias string) Verdict {
	if v, denied := j.server.name(NormalName(alias)); denied {
		return j.Record(Decision{Name: NormalName(name), Aliases: []string{alias}, Proto: DNS}, v)
	}
	return Verdict{Allowed: true}
}

// Answer judges one address in the answer to a look-up of name. An allowed
// one is remembered as name's; one that is not must not reach the sandbox.
func (j *Judge) Answer(name string, addr netip.Addr, ttl time.Duration) Verdict {
	name = NormalName(name)
	v := j.connect(TCP, netip.AddrPortFrom(addr, 0), []string{name})
	if !v.Allowed {
		return j.Record(Decision{Name: name, Addr: netip.AddrPortFrom(addr, 0), Proto: DNS}, v)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.names.remember(j.now(), name, addr, ttl)
	return v
}

// Connect judges a connection or a datagram to addr, by the names that addr
// was given out for.
func (j *Judge) Connect(proto string, addr netip.AddrPort) Verdict {
	names := j.NamesOf(addr.Addr())
	v := j.connect(proto, addr, names)
	v.Resolved = names
	return j.Record(Decision{Addr: addr, Proto: proto}.named(v.about()), v)
}

// Recheck judges an open connection anew, by the names it was opened for;
// only a refusal is recorded.
func (j *Judge) Recheck(proto string, addr netip.AddrPort, names []string) Verdict {
	v := j.connect(proto, addr, names)
	if !v.Allowed {
		return j.Record(Decision{Addr: addr, Proto: proto}.named(names), v)
	}
	return v
}

// DeniesNames tells that the server name of each TLS connection must be judged,
// also of one that no name led to.
func (j *Judge) DeniesNames() bool { return j.server.names != nil }

// ServerName judges the server name of a TLS connection to addr that was
// allowed by v. An empty one is a connection that names no server.
func (j *Judge) ServerName(v Verdict, addr netip.AddrPort, server string) Verdict {
	server = NormalName(server)
	if r, denied := j.server.name(server); denied {
		return j.Record(Decision{Name: server, Addr: addr, Proto: TCP}, r)
	}
	if len(v.Names) == 0 || slices.Contains(v.Names, server) {
		return v
	}
	r := Verdict{Rule: "server name", Reason: fmt.Sprintf("the TLS server name %q is not the name that %s was resolved for (%s)", server, addr.Addr(), someNames(v.Names))}
	if server == "" {
		r.Reason = fmt.Sprintf("the TLS connection to %s names no server, so it cannot be matched with %s", addr.Addr(), someNames(v.Names))
	}
	return j.Record(Decision{Name: server, Addr: addr, Proto: TCP}, r)
}

// NamesOf are the names that addr was given out for, newest last.
func (j *Judge) NamesOf(addr netip.Addr) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.names.lookup(j.now(), addr)
}

// Log of what was decided.
func (j *Judge) Log() *Log { return j.log }

// Record adds d, with what v says of it, to the log, and returns v with the
// record's number.
func (j *Judge) Record(d Decision, v Verdict) Verdict {
	d.Time, d.Rule, d.Allowed, d.Reason = j.now(), v.Rule, v.Allowed, v.Reason
	v.Seq = j.log.add(d)
	return v
}

func (j *Judge) connect(proto string, addr netip.AddrPort, names []string) Verdict {
	if v, ok := j.hardRule(addr.Addr()); ok {
		return v
	}
	if v, denied := j.server.any(names); denied {
		return v
	}
	return j.Policy().Connect(proto, addr, names)
}

// hardRule is the hard rules with those of this host and server.
func (j *Judge) hardRule(a netip.Addr) (Verdict, bool) {
	if v, ok := hardRule(a); ok {
		return v, true
	}
	if p, ok := findPrefix(j.deny, a); ok {
		return refuse("internal network", "%s is in %s, the sandboxes' or the server's own network", a, p), true
	}
	own, err := j.host.contains(a)
	if err != nil {
		return refuse("host address", "the host's own addresses cannot be listed: %v", err), true
	}
	if own {
		return refuse("host address", "%s is an address of the host", a), true
	}
	return j.server.addr(a)
}

// hardRule refuses what no policy opens.
func hardRule(a netip.Addr) (Verdict, bool) {
	if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
		return refuse("IPv4 inside IPv6", "%s is not a plain address", a), true
	}
	if r, ok := find(never, a); ok {
		return refuse(r.what, "%s is in %s (%s), which no policy opens", a, r.Prefix, r.what), true
	}
	return Verdict{}, false
}

// Resolve judges a look-up of name (normalised) by the policy alone.
func (p Policy) Resolve(name string) Verdict {
	switch p.Mode() {
	case ModeAllowAll:
		return Verdict{Allowed: true, Rule: ModeAllowAll}
	case ModeDenyAll:
		return refuse(ModeDenyAll, "the network policy denies everything")
	}
	if pat, ok := p.c.index.match(name); ok {
		return Verdict{Allowed: true, Rule: "allow " + pat}
	}
	return refuse("no rule", "no entry of allow matches the name %q", name)
}

// Connect judges a connection to addr, given out for names, by the policy
// alone. It knows nothing of the host's own addresses: Judge.Connect does.
func (p Policy) Connect(proto string, addr netip.AddrPort, names []string) Verdict {
	a := addr.Addr()
	if v, ok := hardRule(a); ok {
		return v
	}
	if p.Mode() == ModeDenyAll {
		return refuse(ModeDenyAll, "the network policy denies everything")
	}
	if d, ok := findPrefix(p.c.deny, a); ok {
		return refuse("subnets.deny "+d.String(), "subnets.deny has %s", d)
	}
	if r, ok := find(private, a); ok {
		return p.connectPrivate(proto, a, r)
	}
	if p.c.mode == ModeAllowAll {
		return Verdict{Allowed: true, Rule: ModeAllowAll}
	}
	if proto == UDP {
		return refuse("udp", "UDP passes only under allow-all")
	}
	if n, ok := findPrefix(p.c.allow, a); ok {
		return Verdict{Allowed: true, Rule: "subnets.allow " + n.String()}
	}
	return p.connectNames(a, names)
}

// connectPrivate: a range that merely contains private ones, such as
// 0.0.0.0/0, does not name them.
func (p Policy) connectPrivate(proto string, a netip.Addr, r reserved) Verdict {
	for _, n := range p.c.allow {
		if n.Contains(a) && n.Bits() >= r.Bits() && proto != UDP {
			return Verdict{Allowed: true, Rule: "subnets.allow " + n.String()}
		}
	}
	return refuse(r.what, "%s is in the %s %s; only an entry of subnets.allow inside that range opens it", a, r.what, r.Prefix)
}

func (p Policy) connectNames(a netip.Addr, names []string) Verdict {
	v := Verdict{Allowed: true}
	for _, n := range names {
		if pat, ok := p.c.index.match(n); ok {
			v.Rule = "allow " + pat
			v.Names = append(v.Names, n)
		}
	}
	switch {
	case len(v.Names) > 0:
		return v
	case len(names) > 0:
		return refuse("no rule", "%s was resolved for %s, which no entry of allow matches", a, someNames(names))
	}
	return refuse("no rule", "%s was not resolved for an allowed name, and no entry of subnets.allow has it", a)
}

func refuse(rule, format string, args ...any) Verdict {
	return Verdict{Rule: rule, Reason: fmt.Sprintf(format, args...)}
}
