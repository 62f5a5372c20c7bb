package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Modes of a network policy. A request names one of the first two, or brings
// Allow and Subnets without a mode, which is custom.
const (
	PolicyAllowAll = "allow-all"
	PolicyDenyAll  = "deny-all"
	PolicyCustom   = "custom"
)

// NetworkPolicy is a policy as clients send it. Decoding checks its shape;
// what names, subnets and rules may hold is the policy engine's to judge.
type NetworkPolicy struct {
	Mode    string         `json:"mode,omitempty"`
	Allow   *AllowList     `json:"allow,omitempty"`
	Subnets *PolicySubnets `json:"subnets,omitempty"`
}

// UnmarshalJSON also takes the bare strings "allow-all" and "deny-all".
func (p *NetworkPolicy) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		*p = NetworkPolicy{}
		return json.Unmarshal(b, &p.Mode)
	}
	type bare NetworkPolicy
	*p = NetworkPolicy{}
	return keepTypeError(json.Unmarshal(b, (*bare)(p)))
}

// PolicySubnets are CIDR lists; Deny goes before everything.
type PolicySubnets struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// AllowList is the allowed domains in the client's order: on the wire an
// array of names, or an object of names with their rules.
type AllowList []AllowedDomain

// AllowedDomain is a name pattern and the rules of requests to it.
type AllowedDomain struct {
	Domain string
	Rules  []PolicyRule
}

// UnmarshalJSON takes both forms.
func (l *AllowList) UnmarshalJSON(b []byte) error {
	*l = AllowList{}
	switch b[0] {
	case '[':
		var names []string
		if err := json.Unmarshal(b, &names); err != nil {
			return keepTypeError(err)
		}
		for _, n := range names {
			*l = append(*l, AllowedDomain{Domain: n})
		}
		return nil
	case '{':
		return l.unmarshalObject(b)
	}
	return &json.UnmarshalTypeError{Value: describe(b), Type: reflect.TypeFor[[]string]()}
}

// unmarshalObject keeps the order of the names, which a map would lose.
func (l *AllowList) unmarshalObject(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		d := AllowedDomain{Domain: key.(string)}
		if seen[d.Domain] {
			return BadRequest("field networkPolicy.allow: %q is there twice; merge its rules", clip(d.Domain))
		}
		seen[d.Domain] = true
		if err := dec.Decode(&d.Rules); err != nil {
			if te, ok := errors.AsType[*json.UnmarshalTypeError](keepTypeError(err)); ok {
				return BadRequest("field networkPolicy.allow[%q]%s: must be %s, got %s", clip(d.Domain), dotted(te.Field), wanted(te.Type), te.Value)
			}
			return err
		}
		*l = append(*l, d)
	}
	return nil
}

func dotted(field string) string {
	if field == "" {
		return ""
	}
	return "." + field
}

// MarshalJSON writes an array where no domain has rules, else an object, in order.
func (l AllowList) MarshalJSON() ([]byte, error) {
	names, rules := []string{}, false
	for _, d := range l {
		names, rules = append(names, d.Domain), rules || len(d.Rules) > 0
	}
	if !rules {
		return json.Marshal(names)
	}
	var out bytes.Buffer
	for i, d := range l {
		key, err := json.Marshal(d.Domain)
		if err != nil {
			return nil, err
		}
		if d.Rules == nil {
			d.Rules = []PolicyRule{}
		}
		value, err := json.Marshal(d.Rules)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%c%s:%s", "{,"[min(i, 1)], key, value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// PolicyRule is applied to the requests that Match; exactly one of
// Transform, ForwardURL and Response is present.
type PolicyRule struct {
	Match      *RuleMatch      `json:"match,omitempty"`
	Transform  []RuleTransform `json:"transform,omitzero"`
	ForwardURL *string         `json:"forwardURL,omitempty"`
	Response   *DirectResponse `json:"response,omitempty"`
}

// RuleTransform sets headers on the way out.
type RuleTransform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// DirectResponse is sent instead of asking the destination.
type DirectResponse struct {
	StatusCode  Int               `json:"statusCode,omitzero"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        *string           `json:"body,omitempty"`
	ContentType *string           `json:"contentType,omitempty"`
}

// RuleMatch: every part that is present must match.
type RuleMatch struct {
	Path        *StringMatch    `json:"path,omitempty"`
	Method      []string        `json:"method,omitempty"`
	QueryString []KeyValueMatch `json:"queryString,omitempty"`
	Headers     []KeyValueMatch `json:"headers,omitempty"`
}

// KeyValueMatch matches an entry by key and value.
type KeyValueMatch struct {
	Key   *StringMatch `json:"key,omitempty"`
	Value *StringMatch `json:"value,omitempty"`
}

// StringMatch is one of the three.
type StringMatch struct {
	Exact      *string `json:"exact,omitempty"`
	StartsWith *string `json:"startsWith,omitempty"`
	Regex      *string `json:"regex,omitempty"`
}

// NetworkPolicyRequest is the body of POST …/network-policy: the policy itself.
type NetworkPolicyRequest = NetworkPolicy
