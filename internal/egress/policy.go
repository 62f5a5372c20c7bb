// Package egress decides what a sandbox may reach: which names resolve and
// which addresses may be connected to, with a reason for every verdict.
//
// A Policy is what the user asked for. A Judge applies it for one sandbox,
// on top of rules that no policy can lift (host, metadata, link-local, …),
// remembers which names the sandbox's addresses came from, and keeps its
// latest decisions. The package sends and receives nothing itself.
package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/egress/rule"
)

// Modes of a policy, as the API spells them.
const (
	ModeAllowAll = "allow-all"
	ModeDenyAll  = "deny-all"
	ModeCustom   = "custom"
)

// Policy is an immutable network policy. Its zero value denies everything.
// It is safe for concurrent use and cheap to copy; compare with Equal.
type Policy struct{ c *content }

// content is shared by copies of a Policy and never changed.
type content struct {
	mode    string
	domains []string // normalised patterns, in the order given
	allow   []netip.Prefix
	deny    []netip.Prefix
	index   *patterns
	rules   map[string]rule.Set // by pattern, where it has any
}

// AllowAll lets everything out but what the hard rules forbid.
func AllowAll() Policy { return Policy{&content{mode: ModeAllowAll}} }

// DenyAll lets nothing out, DNS included.
func DenyAll() Policy { return Policy{} }

// newCustom takes ownership of its arguments, which are valid and normalised.
func newCustom(domains []string, allow, deny []netip.Prefix) Policy {
	if len(domains) == 0 && len(allow) == 0 {
		return DenyAll()
	}
	c := &content{mode: ModeCustom, domains: domains, allow: allow, deny: deny, index: newPatterns()}
	for _, d := range domains {
		c.index.add(d)
	}
	return Policy{c}
}

// Mode is ModeAllowAll, ModeDenyAll or ModeCustom.
func (p Policy) Mode() string {
	if p.c == nil {
		return ModeDenyAll
	}
	return p.c.mode
}

// Domains are the allowed name patterns of a custom policy.
func (p Policy) Domains() []string {
	if p.c == nil {
		return nil
	}
	return slices.Clone(p.c.domains)
}

// Subnets are the allowed and denied ranges of a custom policy.
func (p Policy) Subnets() (allow, deny []netip.Prefix) {
	if p.c == nil {
		return nil, nil
	}
	return slices.Clone(p.c.allow), slices.Clone(p.c.deny)
}

// Equal reports whether both say the same, in the same order. Rules are not
// compared: policies that have any are equal to their own copies only.
func (p Policy) Equal(o Policy) bool {
	if p.c == o.c {
		return true
	}
	if p.c == nil || o.c == nil {
		return p.Mode() == o.Mode()
	}
	return p.c.mode == o.c.mode && len(p.c.rules)+len(o.c.rules) == 0 && slices.Equal(p.c.domains, o.c.domains) &&
		slices.Equal(p.c.allow, o.c.allow) && slices.Equal(p.c.deny, o.c.deny)
}

// String is the mode, and for a custom policy what it allows and denies.
func (p Policy) String() string {
	if p.Mode() != ModeCustom {
		return p.Mode()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "allow %s", strings.Join(p.c.domains, " "))
	for _, n := range p.c.allow {
		fmt.Fprintf(&b, " %s", n)
	}
	for _, n := range p.c.deny {
		fmt.Fprintf(&b, " !%s", n)
	}
	return b.String()
}

// wire is the stored form of a policy; the API's responses look the same.
type wire struct {
	Mode           string   `json:"mode"`
	AllowedDomains []string `json:"allowedDomains,omitempty"`
	AllowedCIDRs   []string `json:"allowedCIDRs,omitempty"`
	DeniedCIDRs    []string `json:"deniedCIDRs,omitempty"`
}

// errRules: what is stored must not lose rules, nor hold their secrets unasked.
var errRules = errors.New("a policy with rules has no stored form")

// MarshalJSON implements json.Marshaler. It refuses a policy with rules.
func (p Policy) MarshalJSON() ([]byte, error) {
	w := wire{Mode: p.Mode()}
	if p.HasRules() {
		return nil, errRules
	}
	if p.c != nil {
		w.AllowedDomains = p.c.domains
		w.AllowedCIDRs = prefixStrings(p.c.allow)
		w.DeniedCIDRs = prefixStrings(p.c.deny)
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler for what MarshalJSON makes.
func (p *Policy) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("read stored network policy: %w", err)
	}
	switch w.Mode {
	case ModeAllowAll:
		*p = AllowAll()
	case ModeDenyAll:
		*p = DenyAll()
	case ModeCustom:
		q, err := custom(w.AllowedDomains, w.AllowedCIDRs, w.DeniedCIDRs)
		if err != nil {
			return fmt.Errorf("read stored network policy: %w", err)
		}
		*p = q
	default:
		return fmt.Errorf("read stored network policy: unknown mode %q", w.Mode)
	}
	return nil
}

func prefixStrings(ps []netip.Prefix) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}
