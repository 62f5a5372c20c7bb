package egress

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// reserved is a range with what it is for.
type reserved struct {
	netip.Prefix
	what string
}

func mustReserved(what string, prefixes ...string) []reserved {
	var out []reserved
	for _, p := range prefixes {
		out = append(out, reserved{netip.MustParsePrefix(p), what})
	}
	return out
}

// never are ranges that no policy opens: the special-purpose registries of
// IANA (RFC 6890), less what is private or global, and the addresses at which
// clouds serve their machines' secrets. The IPv6 ones that carry an IPv4
// address inside (mapped, compatible, NAT64, 6to4, Teredo) would otherwise be
// a way round the IPv4 rules. The first that holds an address names the rule.
var never = slices.Concat(
	mustReserved("metadata service", "169.254.169.254/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
		"fd00:ec2::254/128", "fd20:ce::254/128"),
	mustReserved("this network", "0.0.0.0/8", "::/128"),
	mustReserved("loopback", "127.0.0.0/8", "::1/128"),
	mustReserved("link-local", "169.254.0.0/16", "fe80::/10"),
	mustReserved("site-local", "fec0::/10"),
	mustReserved("multicast", "224.0.0.0/4", "ff00::/8"),
	mustReserved("broadcast", "255.255.255.255/32"),
	mustReserved("reserved", "240.0.0.0/4", "192.0.0.0/24", "100::/64", "100:0:0:1::/64", "5f00::/16"),
	mustReserved("6to4 relay", "192.88.99.0/24"),
	mustReserved("IPv4 inside IPv6", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
	mustReserved("protocol assignments", "2001::/23"),
	// All but 2000::/3 and the private fc00::/7.
	mustReserved("not allocated", "::/3", "4000::/2", "8000::/2", "c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/7"),
)

// private are ranges that open only to a subnets.allow entry inside them.
var private = slices.Concat(
	mustReserved("private range", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
	mustReserved("carrier-grade NAT range", "100.64.0.0/10"),
	mustReserved("benchmarking range", "198.18.0.0/15"),
	mustReserved("documentation range", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
)

// Public reports whether a is an address of the open Internet: neither
// private nor one of those that no policy opens.
func Public(a netip.Addr) bool {
	_, hard := hardRule(a)
	_, priv := find(private, a)
	return !hard && !priv
}

func find(rs []reserved, a netip.Addr) (reserved, bool) {
	for _, r := range rs {
		if r.Contains(a) {
			return r, true
		}
	}
	return reserved{}, false
}

// findPrefix returns the narrowest of ps that holds a.
func findPrefix(ps []netip.Prefix, a netip.Addr) (netip.Prefix, bool) {
	best, ok := netip.Prefix{}, false
	for _, p := range ps {
		if p.Contains(a) && (!ok || p.Bits() > best.Bits()) {
			best, ok = p, true
		}
	}
	return best, ok
}

// hostTTL is how long the list of the host's addresses is believed. Short,
// because an address that the host gains must be closed soon.
const hostTTL = 2 * time.Second

// HostAddrs lists the addresses of the host's interfaces, cached briefly and
// shared by all sandboxes. Safe for concurrent use.
type HostAddrs struct {
	list func() ([]netip.Addr, error)
	now  func() time.Time

	mu    sync.Mutex // guards what follows
	until time.Time
	set   map[netip.Addr]bool
	err   error
}

// NewHostAddrs returns a cache over list; nil means the interfaces of this
// host.
func NewHostAddrs(list func() ([]netip.Addr, error)) *HostAddrs {
	if list == nil {
		list = interfaceAddrs
	}
	return &HostAddrs{list: list, now: time.Now}
}

var thisHost = sync.OnceValue(func() *HostAddrs { return NewHostAddrs(nil) })

// contains reports whether a is the host's own. When the list cannot be had
// the error says so, and the caller must refuse.
func (h *HostAddrs) contains(a netip.Addr) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); h.set == nil || !now.Before(h.until) {
		addrs, err := h.list()
		h.set, h.err, h.until = map[netip.Addr]bool{}, err, now.Add(hostTTL)
		for _, x := range addrs {
			h.set[x.Unmap().WithZone("")] = true
		}
	}
	return h.set[a], h.err
}

func interfaceAddrs() ([]netip.Addr, error) {
	as, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range as {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out, nil
}
