package api

import (
	"maps"
	"slices"
)

// NetworkPolicyView is a policy in an answer. It never holds the value of an
// injected header.
type NetworkPolicyView struct {
	Mode           string          `json:"mode"`
	AllowedDomains []string        `json:"allowedDomains,omitempty"`
	AllowedCIDRs   []string        `json:"allowedCIDRs,omitempty"`
	DeniedCIDRs    []string        `json:"deniedCIDRs,omitempty"`
	InjectionRules []InjectionRule `json:"injectionRules,omitempty"`
	ForwardRules   []ForwardRule   `json:"forwardRules,omitempty"`
	ResponseRules  []ResponseRule  `json:"responseRules,omitempty"`
}

// InjectionRule tells which headers are set for a domain.
type InjectionRule struct {
	Domain      string     `json:"domain"`
	HeaderNames []string   `json:"headerNames"`
	Match       *RuleMatch `json:"match,omitempty"`
}

// ForwardRule tells where a domain's requests are sent.
type ForwardRule struct {
	Domain     string     `json:"domain"`
	ForwardURL string     `json:"forwardURL"`
	Match      *RuleMatch `json:"match,omitempty"`
}

// ResponseRule tells what is answered for a domain.
type ResponseRule struct {
	Domain   string         `json:"domain"`
	Response DirectResponse `json:"response"`
	Match    *RuleMatch     `json:"match,omitempty"`
}

// View returns p as answers show it. A nil policy is allow-all.
func (p *NetworkPolicy) View() *NetworkPolicyView {
	if p == nil {
		return &NetworkPolicyView{Mode: PolicyAllowAll}
	}
	if p.Mode != "" {
		return &NetworkPolicyView{Mode: p.Mode}
	}
	v := &NetworkPolicyView{Mode: PolicyCustom}
	if p.Subnets != nil {
		v.AllowedCIDRs, v.DeniedCIDRs = p.Subnets.Allow, p.Subnets.Deny
	}
	if p.Allow == nil {
		return v
	}
	for _, d := range *p.Allow {
		v.AllowedDomains = append(v.AllowedDomains, d.Domain)
		for _, r := range d.Rules {
			v.addRule(d.Domain, r)
		}
	}
	return v
}

func (v *NetworkPolicyView) addRule(domain string, r PolicyRule) {
	switch {
	case r.ForwardURL != nil:
		v.ForwardRules = append(v.ForwardRules, ForwardRule{Domain: domain, ForwardURL: *r.ForwardURL, Match: r.Match})
	case r.Response != nil:
		v.ResponseRules = append(v.ResponseRules, ResponseRule{Domain: domain, Response: *r.Response, Match: r.Match})
	default:
		names := map[string]bool{}
		for _, t := range r.Transform {
			for n := range t.Headers {
				names[n] = true
			}
		}
		sorted := slices.Sorted(maps.Keys(names))
		if sorted == nil {
			sorted = []string{}
		}
		v.InjectionRules = append(v.InjectionRules, InjectionRule{Domain: domain, HeaderNames: sorted, Match: r.Match})
	}
}
