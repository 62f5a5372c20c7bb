package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

func parse(t testing.TB, js string) (Policy, error) {
	t.Helper()
	var in api.NetworkPolicy
	if err := json.Unmarshal([]byte(js), &in); err != nil {
		t.Fatalf("unmarshal %s: %v", js, err)
	}
	return Parse(in)
}

func mustParse(t testing.TB, js string) Policy {
	t.Helper()
	p, err := parse(t, js)
	if err != nil {
		t.Fatalf("Parse(%s): %v", js, err)
	}
	return p
}

func TestParse(t *testing.T) {
	for js, want := range map[string]string{
		`"allow-all"`:                        "allow-all",
		`"deny-all"`:                         "deny-all",
		`{"mode":"allow-all"}`:               "allow-all",
		`{}`:                                 "deny-all",
		`{"allow":[]}`:                       "deny-all",
		`{"subnets":{"deny":["8.0.0.0/8"]}}`: "deny-all",
		`{"allow":["A.Example.COM.","a.example.com"]}`:                                                  "allow a.example.com",
		`{"allow":{"*.x.io":[],"*":[]}}`:                                                                "allow *.x.io *",
		`{"allow":["www.*.com"],"subnets":{"allow":["10.1.2.3/8","1.2.3.4"],"deny":["2001:db8::/32"]}}`: "allow www.*.com 10.0.0.0/8 1.2.3.4/32 !2001:db8::/32",
	} {
		p := mustParse(t, js)
		if p.String() != want {
			t.Errorf("Parse(%s) = %q, want %q", js, p, want)
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var q Policy
		if err := json.Unmarshal(b, &q); err != nil || !q.Equal(p) {
			t.Errorf("round trip of %s by %s: %v, %v", js, b, q, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for js, want := range map[string][]string{
		`{"mode":"maybe"}`: {"networkPolicy.mode", "maybe"},
		`{"mode":"allow-all","subnets":{"deny":["1.2.3.0/24"]}}`:                {"networkPolicy.mode"},
		`{"allow":["ok.com",""]}`:                                               {"networkPolicy.allow[1]", "empty"},
		`{"allow":["https://x.com"]}`:                                           {"networkPolicy.allow[0]", "URL"},
		`{"allow":["x.com:443"]}`:                                               {"port"},
		`{"allow":["1.2.3.4"]}`:                                                 {"subnets.allow"},
		`{"allow":["api-*.x.com"]}`:                                             {"whole label"},
		`{"allow":["a..b"]}`:                                                    {"two dots"},
		`{"allow":[".b.com"]}`:                                                  {"*.domain"},
		`{"allow":["bücher.de"]}`:                                               {"xn--"},
		`{"allow":["a b"]}`:                                                     {"' '"},
		`{"allow":["` + strings.Repeat("a", 64) + `.com"]}`:                     {"63"},
		`{"allow":["` + strings.Repeat("a.", 130) + `com"]}`:                    {"253"},
		`{"subnets":{"allow":["10.0.0.0/33"]}}`:                                 {"networkPolicy.subnets.allow[0]", "CIDR"},
		`{"subnets":{"deny":["::ffff:10.0.0.0/104"]}}`:                          {"networkPolicy.subnets.deny[0]", "IPv4"},
		`{"allow":{"x.com":[{"transform":[]},{"response":{"statusCode":1}}]}}`:  {`networkPolicy.allow["x.com"][1].response.statusCode`, "200"},
		`{"allow":{"x.com":[{"match":{"path":{"regex":"("}},"transform":[]}]}}`: {`networkPolicy.allow["x.com"][0].match.path.regex`, "RE2"},
		`{"allow":{"x.com":[{}]}}`:                                              {`networkPolicy.allow["x.com"][0].transform`, "exactly one"},
	} {
		_, err := parse(t, js)
		var ae *api.Error
		if !errors.As(err, &ae) || ae.Code != api.CodeBadRequest {
			t.Errorf("Parse(%s) = %v, want a bad_request", js, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("Parse(%s): %q does not hold %q", js, err, w)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	p := mustParse(t, `{"allow":["one.com","*.deep.org","www.*.net","*.a.*.io"]}`)
	for name, want := range map[string]string{
		"one.com": "allow one.com", "ONE.com.": "allow one.com", "x.one.com": "", "one.com.evil.org": "", "xone.com": "",
		"a.deep.org": "allow *.deep.org", "a.b.c.deep.org": "allow *.deep.org", "deep.org": "", "notdeep.org": "",
		"www.x.net": "allow www.*.net", "www.x.y.net": "", "www.net": "", "x.www.x.net": "",
		"q.a.z.io": "allow *.a.*.io", "q.r.a.z.io": "allow *.a.*.io", "a.z.io": "", "q.b.z.io": "",
		"": "", ".": "", `x\.deep.org`: "", `\046.deep.org`: "", "*": "", "*.one.com": "", "www.*.net": "allow www.*.net",
	} {
		v := p.Resolve(NormalName(name))
		if v.Allowed != (want != "") || v.Allowed && v.Rule != want {
			t.Errorf("Resolve(%q) = %+v, want %q", name, v, want)
		}
		if !v.Allowed && v.Reason == "" {
			t.Errorf("Resolve(%q): refused without a reason", name)
		}
	}
	if v := mustParse(t, `{"allow":["*"]}`).Resolve("any.thing"); !v.Allowed {
		t.Errorf("* does not allow: %+v", v)
	}
	var zero Policy
	if zero.Resolve("x.com").Allowed || !AllowAll().Resolve("x.com").Allowed || DenyAll().Resolve("x.com").Allowed {
		t.Error("modes")
	}
}

func newTestJudge(p Policy) (*Judge, *time.Time) {
	now := time.Unix(1_700_000_000, 0)
	host := NewHostAddrs(func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("2001:db8::7")}, nil
	})
	host.now = func() time.Time { return now }
	return NewJudge(Options{Policy: p, Host: host, Deny: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}, Now: func() time.Time { return now }}), &now
}

func ap(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 443) }

// hardCases hold under every policy, the most open one included.
var hardCases = map[string]string{
	"127.0.0.1": "loopback", "127.9.9.9": "loopback", "::1": "loopback", "0.0.0.0": "this network", "0.1.2.3": "this network", "::": "this network",
	"169.254.169.254": "metadata service", "169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "IPv4 inside IPv6",
	"100.100.100.200": "metadata service", "fd00:ec2::254": "metadata service", "192.0.0.192": "metadata service",
	"224.0.0.251": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast", "240.0.0.1": "reserved",
	"::ffff:1.1.1.1": "IPv4 inside IPv6", "::ffff:127.0.0.1": "IPv4 inside IPv6", "64:ff9b::7f00:1": "IPv4 inside IPv6", "2002:7f00:1::": "IPv4 inside IPv6", "::7f00:1": "IPv4 inside IPv6",
	"198.51.100.7": "host address", "10.0.0.9": "host address", "2001:db8::7": "host address",
	"10.88.0.1": "internal network", "10.88.0.3": "internal network",
}

func TestHardRules(t *testing.T) {
	open := `"subnets":{"allow":["0.0.0.0/0","::/0","10.0.0.0/8","127.0.0.0/8","169.254.0.0/16","100.64.0.0/10","fc00::/7","fe80::/10"]}`
	for _, p := range []Policy{AllowAll(), mustParse(t, `{"allow":["*"],`+open+`}`)} {
		j, _ := newTestJudge(p)
		for a, rule := range hardCases {
			if v := j.Connect(TCP, ap(a)); v.Allowed || v.Rule != rule || v.Reason == "" {
				t.Errorf("%.20s: Connect(%s) = %+v, want refused by %q", p, a, v, rule)
			}
			if v := j.Answer("x.com", netip.MustParseAddr(a), time.Minute); v.Allowed {
				t.Errorf("%.20s: the answer %s is allowed", p, a)
			}
		}
		if v := j.Connect(TCP, ap("1.1.1.1")); !v.Allowed {
			t.Errorf("%.20s: %+v", p, v)
		}
	}
	// A host whose addresses cannot be listed reaches nothing.
	j := NewJudge(Options{Policy: AllowAll(), Host: NewHostAddrs(func() ([]netip.Addr, error) { return nil, errors.New("no netlink") })})
	if v := j.Connect(TCP, ap("1.1.1.1")); v.Allowed {
		t.Errorf("allowed without knowing the host's addresses: %+v", v)
	}
}

func TestHostAddrsFollowsChanges(t *testing.T) {
	now, addrs := time.Unix(0, 0), []netip.Addr(nil)
	h := NewHostAddrs(func() ([]netip.Addr, error) { return addrs, nil })
	h.now = func() time.Time { return now }
	j := NewJudge(Options{Policy: AllowAll(), Host: h})
	if !j.Connect(TCP, ap("203.0.114.5")).Allowed {
		t.Fatal("refused before it is the host's")
	}
	addrs = []netip.Addr{netip.MustParseAddr("203.0.114.5")}
	now = now.Add(hostTTL)
	if j.Connect(TCP, ap("203.0.114.5")).Allowed {
		t.Fatal("allowed although it has become the host's")
	}
}

func TestPrivateRanges(t *testing.T) {
	for _, tc := range []struct {
		policy, addr string
		want         bool
	}{
		{`"allow-all"`, "10.1.2.3", false}, {`"allow-all"`, "172.31.0.1", false}, {`"allow-all"`, "192.168.1.1", false},
		{`"allow-all"`, "100.64.0.1", false}, {`"allow-all"`, "fd12::1", false}, {`"allow-all"`, "172.32.0.1", true}, {`"allow-all"`, "9.9.9.9", true},
		{`{"subnets":{"allow":["10.1.0.0/16"]}}`, "10.1.2.3", true}, {`{"subnets":{"allow":["10.1.0.0/16"]}}`, "10.2.2.3", false},
		{`{"subnets":{"allow":["10.0.0.0/8"]}}`, "10.2.2.3", true},
		{`{"subnets":{"allow":["0.0.0.0/0"]}}`, "10.2.2.3", false}, {`{"subnets":{"allow":["8.0.0.0/5"]}}`, "10.2.2.3", false},
		{`{"subnets":{"allow":["0.0.0.0/0"]}}`, "9.9.9.9", true},
		{`{"subnets":{"allow":["10.0.0.0/8"],"deny":["10.1.0.0/16"]}}`, "10.1.2.3", false},
		{`{"subnets":{"allow":["10.1.2.3"],"deny":["10.1.0.0/16"]}}`, "10.1.2.3", false},
		{`{"subnets":{"allow":["100.64.0.0/10"]}}`, "100.64.0.1", true}, {`{"allow":["*"]}`, "10.1.2.3", false},
	} {
		j, _ := newTestJudge(mustParse(t, tc.policy))
		if v := j.Connect(TCP, ap(tc.addr)); v.Allowed != tc.want {
			t.Errorf("%s: %s = %+v, want allowed %v", tc.policy, tc.addr, v, tc.want)
		}
	}
}

func TestNamesAndAddresses(t *testing.T) {
	j, now := newTestJudge(mustParse(t, `{"allow":["good.com","*.good.com"],"subnets":{"allow":["9.9.9.0/24"],"deny":["9.9.9.9/32","7.7.7.7/32"]}}`))
	check := func(proto, addr string, want bool) {
		t.Helper()
		if v := j.Connect(proto, ap(addr)); v.Allowed != want {
			t.Errorf("Connect(%s %s) = %+v, want %v", proto, addr, v, want)
		}
	}
	check(TCP, "8.8.8.8", false) // a literal
	if v := j.Answer("good.com", netip.MustParseAddr("8.8.8.8"), time.Second); !v.Allowed {
		t.Fatalf("answer: %+v", v)
	}
	check(TCP, "8.8.8.8", true)
	check(UDP, "8.8.8.8", false)
	check(TCP, "9.9.9.1", true)
	check(UDP, "9.9.9.1", false)
	check(TCP, "9.9.9.9", false)
	for _, a := range []string{"7.7.7.7", "10.3.3.3", "127.0.0.1"} { // denied, rebinding
		if v := j.Answer("good.com", netip.MustParseAddr(a), time.Second); v.Allowed {
			t.Errorf("answer %s: %+v", a, v)
		}
	}
	*now = now.Add(time.Minute) // far beyond the TTL, as caching clients are
	check(TCP, "8.8.8.8", true)
	v := j.Connect(TCP, ap("8.8.8.8"))
	if !j.ServerName(v, ap("8.8.8.8"), "GOOD.com.").Allowed || j.ServerName(v, ap("8.8.8.8"), "x.good.com").Allowed || j.ServerName(v, ap("8.8.8.8"), "").Allowed {
		t.Error("server names")
	}
	if lit := j.Connect(TCP, ap("9.9.9.1")); !j.ServerName(lit, ap("9.9.9.1"), "").Allowed {
		t.Error("a connection allowed by its address needs no server name")
	}
	j.SetPolicy(mustParse(t, `{"allow":["other.com"]}`))
	check(TCP, "8.8.8.8", false)
	if v := j.Recheck(TCP, ap("8.8.8.8"), []string{"good.com"}); v.Allowed {
		t.Errorf("recheck: %+v", v)
	}
	j.SetPolicy(AllowAll())
	*now = now.Add(2 * time.Hour)
	if n := j.NamesOf(netip.MustParseAddr("8.8.8.8")); n != nil {
		t.Errorf("names are kept for ever: %v", n)
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNames()
	for i := range 3 * maxNames {
		n.remember(time.Unix(0, 0), fmt.Sprint(i), netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}), 0)
	}
	if n.order.Len() != maxNames || len(n.byAddr) != maxNames {
		t.Errorf("%d entries, %d addresses", n.order.Len(), len(n.byAddr))
	}
}

func TestPolicyIsImmutable(t *testing.T) {
	p := mustParse(t, `{"allow":["a.com"],"subnets":{"allow":["9.0.0.0/8"]}}`)
	p.Domains()[0] = "evil.com"
	if !slices.Equal(p.Domains(), []string{"a.com"}) || p.Equal(AllowAll()) || !p.Equal(p) {
		t.Error(p)
	}
}

func FuzzDomain(f *testing.F) {
	for _, s := range []string{"a.com", "*.b.org", "*", "a.*.c", "..", "*.*", "\x00"} {
		f.Add(s, "x.a.com")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := custom([]string{pattern}, nil, nil)
		if err != nil {
			return
		}
		v := p.Resolve(NormalName(name))
		if v.Allowed && !strings.Contains(pattern, "*") && NormalName(name) != NormalName(strings.TrimSpace(pattern)) {
			t.Errorf("%q matches %q", pattern, name)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		var ds []string
		for i := range n {
			ds = append(ds, fmt.Sprintf("*.h%d.example.com", i))
		}
		p, err := custom(ds, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				p.Resolve("a.h7.example.com")
			}
		})
	}
}

func TestRules(t *testing.T) {
	p := mustParse(t, `{"allow":{"*.x.com":[{"transform":[]}],"api.x.com":[{"response":{"statusCode":403}},{"transform":[]}],"API.x.com.":[{"transform":[]}],"free.x.com":[],"*":[]}}`)
	for name, want := range map[string]struct {
		pattern string
		rules   int
	}{
		"a.b.x.com": {"*.x.com", 1}, "api.x.com": {"api.x.com", 3}, "free.x.com": {"free.x.com", 0}, "x.com": {"*", 0},
	} {
		if pattern, set := p.Rules(name); pattern != want.pattern || len(set) != want.rules {
			t.Errorf("%s: %d rules of %q", name, len(set), pattern)
		}
	}
	if !p.HasRules() || !p.RulesOfAny([]string{"x.com", "api.x.com"}) || p.RulesOfAny([]string{"x.com", "free.x.com"}) {
		t.Error("which names have rules is wrong")
	}
	if _, err := json.Marshal(p); err == nil {
		t.Error("a policy with rules was stored without them")
	}
	for _, q := range []Policy{AllowAll(), DenyAll(), mustParse(t, `{"allow":["x.com"]}`)} {
		if _, set := q.Rules("x.com"); q.HasRules() || len(set) > 0 {
			t.Errorf("%v has rules", q)
		}
	}
}

// The host of a forwardURL needs no entry of allow, and opens nothing that no
// policy opens.
func TestForward(t *testing.T) {
	j, _ := newTestJudge(mustParse(t, `{"allow":{"x.com":[{"forwardURL":"https://p.com"}]},"subnets":{"allow":["10.1.0.0/16"],"deny":["8.8.0.0/16"]}}`))
	for addr, want := range map[string]bool{
		"93.184.216.34:443": true, "10.1.2.3:443": true, "10.2.0.1:443": false, "8.8.8.8:443": false, "127.0.0.1:443": false, "169.254.169.254:443": false,
	} {
		if v := j.Forward("p.com", netip.MustParseAddrPort(addr)); v.Allowed != want {
			t.Errorf("%s: %+v", addr, v)
		}
	}
}
