package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

// maxPolicyFile is more than any policy that a server takes.
const maxPolicyFile = 8 << 20

// parseNetwork reads the value of --network.
func (a *app) parseNetwork(s string) (*api.NetworkPolicy, error) {
	if file, ok := strings.CutPrefix(s, "@"); ok {
		return a.readPolicy(file)
	}
	switch s {
	case "":
		return nil, nil
	case networkLearn:
		s = api.PolicyAllowAll
	}
	return simplePolicy(s), nil
}

// simplePolicy is a mode, or allowed domains with commas between.
func simplePolicy(s string) *api.NetworkPolicy {
	if s == api.PolicyAllowAll || s == api.PolicyDenyAll {
		return &api.NetworkPolicy{Mode: s}
	}
	allow := api.AllowList{}
	for _, d := range strings.Split(s, ",") {
		allow = append(allow, api.AllowedDomain{Domain: strings.TrimSpace(d)})
	}
	return &api.NetworkPolicy{Allow: &allow}
}

// readPolicy reads a policy as the API takes it from a file, or from stdin
// where that is "-".
func (a *app) readPolicy(file string) (*api.NetworkPolicy, error) {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fail("network policy: "+err.Error(), "name a file with a policy in JSON, such as {\"allow\": [\"example.com\"]}")
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicyFile+1))
	if err == nil && len(text) > maxPolicyFile {
		err = fmt.Errorf("more than %d bytes", maxPolicyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read network policy %s: %w", file, err)
	}
	var p api.NetworkPolicy
	if err := api.Unmarshal(text, &p); err != nil {
		return nil, policyError(file, err)
	}
	return &p, nil
}

// policyError names the file in front of what is wrong with its contents.
func policyError(file string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return fail(file+": "+e.Message, "correct what the message names")
	}
	return fmt.Errorf("%s: %w", file, err)
}

// readDenyList reads the list that flag, or the variable beside it, gives.
func readDenyList(flag, s string) (egress.DenyList, error) {
	if file, ok := strings.CutPrefix(s, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return egress.DenyList{}, fail(flag+": "+err.Error(), "name a file with a name, an address or a range in each line")
		}
		s = string(text)
	}
	list, err := egress.ParseDenyList(s)
	if err != nil {
		return list, fail(flag+": "+err.Error(), "write it like "+flag+" 203.0.114.0/24,internal.example.com,*.internal.example.com")
	}
	return list, nil
}
