package client

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// SuggestPolicy returns the smallest network policy under which what summary
// tells of would have gone the same way: each name that was connected to or
// whose look-up found something, and each address that was connected to
// without a name. What was refused stays refused. The notes say what no such
// policy can cover.
func SuggestPolicy(summary *api.NetworkSummary) (policy api.NetworkPolicy, notes []string) {
	var names api.AllowList
	var addresses []string
	for _, s := range summary.Sums {
		used := s.Connections > 0 || s.Lookups > 0 && s.Answered
		if s.Datagrams > 0 {
			notes = append(notes, fmt.Sprintf("UDP to %s passes only under allow-all", s.Name+s.Address))
		}
		switch {
		case !used:
		case s.Name == "":
			addresses = append(addresses, s.Address)
		case strings.ContainsAny(s.Name, "\\?"):
			notes = append(notes, fmt.Sprintf("the name %q has characters that a policy cannot hold", s.Name))
		default:
			names = append(names, api.AllowedDomain{Domain: s.Name})
		}
	}
	if o := summary.Other; o != nil && (o.Connections > 0 || o.Lookups > 0) {
		notes = append(notes, "more names were used than the server counts one by one: the policy is incomplete")
	}
	if names == nil && addresses == nil {
		return api.NetworkPolicy{Mode: api.PolicyDenyAll}, notes
	}
	if names != nil {
		policy.Allow = &names
	}
	if addresses != nil {
		policy.Subnets = &api.PolicySubnets{Allow: addresses}
	}
	return policy, notes
}
