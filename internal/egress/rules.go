package egress

import (
	"fmt"
	"net/netip"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress/rule"
)

// HTTP and HTTPS are what a request is recorded as.
const (
	HTTP  = "http"
	HTTPS = "https"
)

// maxRules of one policy.
const maxRules = 2_000

// compileRules returns the rules of each domain that has any, by its pattern.
// The domains are valid. Those that are spelled differently and mean the same
// have their rules in one set, in order.
func compileRules(allow api.AllowList) (map[string]rule.Set, error) {
	out, n := map[string]rule.Set{}, 0
	for _, d := range allow {
		if n += len(d.Rules); n > maxRules {
			return nil, api.BadRequest("field networkPolicy.allow: more than %d rules", maxRules)
		}
		if len(d.Rules) == 0 {
			continue
		}
		pattern, err := normalPattern(d.Domain)
		if err != nil {
			return nil, fmt.Errorf("compile rules of %q: %w", d.Domain, err)
		}
		for i, r := range d.Rules {
			c, err := rule.Compile(r)
			if err != nil {
				return nil, api.BadRequest("field networkPolicy.allow[%.80q][%d].%v", d.Domain, i, err)
			}
			out[pattern] = append(out[pattern], c)
		}
	}
	return out, nil
}

// HasRules tells whether any domain has rules, so that connections may have
// to be opened.
func (p Policy) HasRules() bool { return p.c != nil && len(p.c.rules) > 0 }

// Rules returns the rules of requests to name (normalised) and the pattern
// that they stand under, that of the most specific entry of allow.
func (p Policy) Rules(name string) (pattern string, set rule.Set) {
	if !p.HasRules() {
		return "", nil
	}
	pattern, _ = p.c.index.match(name)
	return pattern, p.c.rules[pattern]
}

// RulesOfAny tells whether one of names has rules.
func (p Policy) RulesOfAny(names []string) bool {
	for _, n := range names {
		if _, set := p.Rules(n); len(set) > 0 {
			return true
		}
	}
	return false
}

// Forward judges a connection to addr, an address of the host in a rule's
// forwardURL. The policy's author has named it, so that it needs no entry of
// allow; all else holds as it does for the sandbox.
func (j *Judge) Forward(host string, addr netip.AddrPort) Verdict {
	v, hard := j.hardRule(addr.Addr())
	if !hard {
		p := j.Policy()
		open := &content{mode: ModeAllowAll}
		if p.c != nil {
			open.allow, open.deny = p.c.allow, p.c.deny
		}
		v = Policy{open}.Connect(TCP, addr, nil)
	}
	if v.Allowed {
		v.Rule = "forwardURL"
	}
	return j.Record(Decision{Name: host, Addr: addr, Proto: TCP}, v)
}
