package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// Limits of a policy's size, so that a request cannot make one that is slow
// to load or to judge by.
const (
	maxDomains = 20_000
	maxSubnets = 2_000
)

// Parse checks a policy as a client sent it. Every error is an *api.Error
// that names the field and the remedy.
func Parse(in api.NetworkPolicy) (Policy, error) {
	switch in.Mode {
	case ModeAllowAll, ModeDenyAll:
		if in.Allow != nil || in.Subnets != nil {
			return Policy{}, api.BadRequest("field networkPolicy.mode: %q goes with neither allow nor subnets; leave mode out to give these", in.Mode)
		}
		if in.Mode == ModeAllowAll {
			return AllowAll(), nil
		}
		return DenyAll(), nil
	case "", ModeCustom:
	default:
		return Policy{}, api.BadRequest("field networkPolicy.mode: %.40q is unknown; write \"allow-all\", \"deny-all\", or leave it out and give allow and subnets", in.Mode)
	}
	var allow api.AllowList
	if in.Allow != nil {
		allow = *in.Allow
	}
	var domains []string
	for _, d := range allow {
		domains = append(domains, d.Domain)
	}
	var sub api.PolicySubnets
	if in.Subnets != nil {
		sub = *in.Subnets
	}
	p, err := custom(domains, sub.Allow, sub.Deny)
	if err != nil {
		return Policy{}, err
	}
	rules, err := compileRules(allow)
	if err != nil {
		return Policy{}, err
	}
	if len(rules) > 0 {
		p.c.rules = rules // p has a domain, and nobody else has p yet
	}
	return p, nil
}

// custom makes a policy of lists as users write them.
func custom(domains, allow, deny []string) (Policy, error) {
	if len(domains) > maxDomains {
		return Policy{}, api.BadRequest("field networkPolicy.allow: %d domains, at most %d are possible", len(domains), maxDomains)
	}
	var ds []string
	seen := map[string]bool{}
	for i, d := range domains {
		p, err := normalPattern(d)
		if err != nil {
			return Policy{}, api.BadRequest("field networkPolicy.allow[%d]: %v", i, err)
		}
		if !seen[p] {
			seen[p] = true
			ds = append(ds, p)
		}
	}
	as, err := subnets("networkPolicy.subnets.allow", allow)
	if err != nil {
		return Policy{}, err
	}
	dn, err := subnets("networkPolicy.subnets.deny", deny)
	if err != nil {
		return Policy{}, err
	}
	return newCustom(ds, as, dn), nil
}

// subnets reads ranges; an address alone is the range that holds just it.
func subnets(field string, in []string) ([]netip.Prefix, error) {
	if len(in) > maxSubnets {
		return nil, api.BadRequest("field %s: %d ranges, at most %d are possible", field, len(in), maxSubnets)
	}
	var out []netip.Prefix
	for i, s := range in {
		p, err := subnet(strings.TrimSpace(s))
		if err != nil {
			return nil, api.BadRequest("field %s[%d]: %v", field, i, err)
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

func subnet(s string) (netip.Prefix, error) {
	bad := func() (netip.Prefix, error) {
		return netip.Prefix{}, fmt.Errorf("%.60q is not a range in CIDR notation such as \"203.0.113.0/24\"", s)
	}
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return bad()
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return bad()
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 range in IPv6 form; write it as IPv4", s)
	}
	return p.Masked(), nil
}
