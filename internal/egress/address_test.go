package egress

import (
	"net/netip"
	"strings"
	"testing"
)

// registry is the special-purpose registries of IANA for IPv4 and IPv6, each
// block with what it is to a sandbox.
const registry = `
never   0.0.0.0/8
never   127.0.0.0/8
never   169.254.0.0/16
never   192.0.0.0/24
never   192.0.0.0/29
never   192.0.0.8/32
never   192.0.0.9/32
never   192.0.0.10/32
never   192.0.0.170/32
never   192.88.99.0/24
never   224.0.0.0/4
never   240.0.0.0/4
never   255.255.255.255/32
never   168.63.129.16/32
private 10.0.0.0/8
private 100.64.0.0/10
private 172.16.0.0/12
private 192.168.0.0/16
private 192.0.2.0/24
private 198.51.100.0/24
private 203.0.113.0/24
private 198.18.0.0/15
public  192.31.196.0/24
public  192.52.193.0/24
public  192.175.48.0/24
public  1.1.1.1/32
public  9.255.255.255/32
public  11.0.0.0/8
public  100.63.255.255/32
public  100.128.0.0/32
public  172.15.255.255/32
public  172.32.0.0/32
public  192.0.1.0/24
public  198.17.255.255/32
public  198.20.0.0/32
public  223.255.255.255/32
never   ::/128
never   ::1/128
never   ::7f00:1/128
never   ::ffff:0:0/96
never   ::ffff:0:7f00:1/128
never   64:ff9b::/96
never   64:ff9b:1::/48
never   100::/64
never   100:0:0:1::/64
never   2001::/23
never   2001::/32
never   2001:2::/48
never   2001:20::/28
never   2001:30::/28
never   2002::/16
never   5f00::/16
never   fe80::/10
never   fec0::/10
never   ff00::/8
never   fd00:ec2::254/128
never   4000::/2
never   e000::/4
private 2001:db8::/32
private 3fff::/20
private fc00::/7
public  2001:200::/23
public  2606:4700:4700::1111/128
public  2620:4f:8000::/48
public  2a00::/12
`

// TestReservedRanges: both ends of each block are what the block is, under
// allow-all and under a policy that names everything, or the address itself.
func TestReservedRanges(t *testing.T) {
	all := mustParse(t, `{"subnets":{"allow":["0.0.0.0/0","::/0"]}}`)
	for line := range strings.Lines(strings.TrimSpace(registry)) {
		f := strings.Fields(line)
		p := netip.MustParsePrefix(f[1])
		for _, a := range []netip.Addr{p.Addr(), last(p)} {
			named, err := custom(nil, []string{netip.PrefixFrom(a, a.BitLen()).String()}, nil)
			if err != nil && !a.Is4In6() {
				t.Fatal(err)
			}
			to := netip.AddrPortFrom(a, 443)
			for policy, want := range map[string]struct {
				Policy
				bool
			}{
				"allow-all":  {AllowAll(), f[0] == "public"},
				"everything": {all, f[0] == "public"},
				"named":      {named, f[0] != "never"},
			} {
				if v := want.Policy.Connect(TCP, to, nil); v.Allowed != want.bool {
					t.Errorf("%s, %s block %s, %s: %+v", policy, f[0], p, a, v)
				}
			}
			if Public(a) != (f[0] == "public") {
				t.Errorf("Public(%s) of a %s block", a, f[0])
			}
		}
	}
}

// last is the highest address of p.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestDenyList(t *testing.T) {
	d, err := ParseDenyList("evil.com, *.Evil.com # both\n\n203.0.114.0/24\n9.9.9.9,2606:4700::/32\n# 1.1.1.1\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Policy{AllowAll(), mustParse(t, `{"allow":["*"],"subnets":{"allow":["0.0.0.0/0","203.0.114.7/32"]}}`)} {
		j := NewJudge(Options{Policy: p, Host: NewHostAddrs(func() ([]netip.Addr, error) { return nil, nil }), Server: d})
		for name, want := range map[string]bool{"evil.com": false, "a.b.EVIL.com.": false, "notevil.com": true} {
			if v := j.Resolve(name, "A"); v.Allowed != want || !want && !strings.HasPrefix(v.Rule, "server denies ") {
				t.Errorf("Resolve(%s) = %+v", name, v)
			}
		}
		for addr, want := range map[string]bool{"203.0.114.7": false, "9.9.9.9": false, "9.9.9.8": true, "1.1.1.1": true} {
			if v := j.Connect(TCP, ap(addr)); v.Allowed != want {
				t.Errorf("Connect(%s) = %+v", addr, v)
			}
		}
		if v := j.Answer("good.com", netip.MustParseAddr("203.0.114.1"), 0); v.Allowed {
			t.Errorf("an allowed name leads to a denied address: %+v", v)
		}
		if j.Alias("good.com", "cdn.evil.com").Allowed || !j.Alias("good.com", "cdn.good.com").Allowed {
			t.Error("aliases")
		}
		if v := j.ServerName(Verdict{Allowed: true}, ap("1.1.1.1"), "Evil.com"); v.Allowed {
			t.Errorf("server name: %+v", v)
		}
	}
	for _, bad := range []string{"http://evil.com", "1.2.3.4/40", "a b", "evil..com", "::ffff:1.2.3.4/100"} {
		if _, err := ParseDenyList(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
