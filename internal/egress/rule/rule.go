// Package rule holds what a network policy says about single HTTP requests:
// rules that match a request and set headers, answer it or send it elsewhere.
//
// A Set is the rules of one domain in order; the first that matches decides.
// Values of injected headers are secrets: nothing here prints them.
package rule

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// Kind is what a rule does.
type Kind int

// Kinds of rules.
const (
	Transform Kind = iota // sets headers on the way out
	Respond               // answers without asking the destination
	Forward               // sends the request to a proxy
)

// String is the field that makes a rule of this kind.
func (k Kind) String() string { return [...]string{"transform", "response", "forwardURL"}[k] }

// Header is a header that is set on the way out; Value is a secret.
type Header struct{ Name, Value string }

// String leaves the value out.
func (h Header) String() string { return h.Name + ": [redacted]" }

// GoString leaves the value out.
func (h Header) GoString() string { return h.String() }

// Response is an answer that needs no destination.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Rule is one compiled rule. Safe for concurrent use.
type Rule struct {
	Kind     Kind
	Headers  []Header // of Transform; names canonical and in order
	Response Response // of Respond
	Forward  *url.URL // of Forward: https, without query and fragment
	match    match
}

// managed are headers that belong to the connection, not to the request.
var managed = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

const (
	maxRegex    = 1000    // bytes
	maxMatchers = 32      // in one rule's queryString or headers
	maxBody     = 1 << 20 // bytes of a response
)

// Compile checks and prepares a rule. Errors read "FIELD: what is wrong and
// what to write", FIELD being relative to the rule.
func Compile(in api.PolicyRule) (Rule, error) {
	m, err := compileMatch(in.Match)
	if err != nil {
		return Rule{}, fmt.Errorf("match.%w", err)
	}
	r := Rule{match: m}
	n := 0
	for _, given := range []bool{in.Transform != nil, in.ForwardURL != nil, in.Response != nil} {
		if given {
			n++
		}
	}
	switch {
	case n != 1:
		return Rule{}, fmt.Errorf("transform: a rule has exactly one of transform, forwardURL and response, this one has %d", n)
	case in.ForwardURL != nil:
		r.Kind = Forward
		r.Forward, err = forwardURL(*in.ForwardURL)
	case in.Response != nil:
		r.Kind = Respond
		r.Response, err = response(*in.Response)
	default:
		r.Headers, err = headers(in.Transform)
	}
	return r, err
}

func headers(in []api.RuleTransform) ([]Header, error) {
	set := map[string]string{}
	for i, t := range in {
		for name, value := range t.Headers {
			field := fmt.Sprintf("transform[%d].headers[%.80q]", i, name)
			if err := checkHeader(field, name, value); err != nil {
				return nil, err
			}
			if name = textproto.CanonicalMIMEHeaderKey(name); slices.Contains(managed, name) {
				return nil, fmt.Errorf("%s: the proxy sets this header itself; leave it out", field)
			}
			if _, ok := set[name]; ok {
				return nil, fmt.Errorf("%s: the header is there twice; give it once", field)
			}
			set[name] = value
		}
	}
	var out []Header
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, Header{name, set[name]})
	}
	return out, nil
}

// checkHeader never says the value: it may be a secret.
func checkHeader(field, name, value string) error {
	if !isToken(name) {
		return fmt.Errorf("%s: is no header name; use letters, digits and -", field)
	}
	if !isHeaderValue(value) {
		return fmt.Errorf("%s: the value has characters that a header cannot hold, such as a line break; remove them", field)
	}
	return nil
}

func response(in api.DirectResponse) (Response, error) {
	status, set := in.StatusCode.Get()
	out := Response{Status: int(status), Header: http.Header{}}
	if !set || status < 200 || status > 599 {
		return out, fmt.Errorf("response.statusCode: must be 200 to 599, is %d", status)
	}
	for name, value := range in.Headers {
		field := fmt.Sprintf("response.headers[%.80q]", name)
		if err := checkHeader(field, name, value); err != nil {
			return out, err
		}
		if name = textproto.CanonicalMIMEHeaderKey(name); slices.Contains(managed, name) {
			return out, fmt.Errorf("%s: the proxy sets this header itself; leave it out", field)
		}
		if out.Header.Get(name) != "" {
			return out, fmt.Errorf("%s: the header is there twice; give it once", field)
		}
		out.Header.Set(name, value)
	}
	if in.ContentType != nil {
		if err := checkHeader("response.contentType", "Content-Type", *in.ContentType); err != nil {
			return out, err
		}
		out.Header.Set("Content-Type", *in.ContentType)
	}
	if in.Body == nil {
		return out, nil
	}
	switch {
	case in.ContentType == nil:
		return out, fmt.Errorf("response.contentType: must be given with a body, such as \"text/plain\"")
	case status == 204 || status == 205 || status == 304:
		return out, fmt.Errorf("response.body: an answer %d has none; leave it out", status)
	case len(*in.Body) > maxBody:
		return out, fmt.Errorf("response.body: has %d bytes, at most %d are possible", len(*in.Body), maxBody)
	}
	out.Body = *in.Body
	return out, nil
}

// forwardURL keeps the form that WHATWG parsers give the address, because the
// receiver compares the token's audience with that.
func forwardURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		return nil, fmt.Errorf("forwardURL: must be an address like \"https://proxy.example.com/path\"")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#") {
		return nil, fmt.Errorf("forwardURL: must hold no user, query or fragment; give scheme, host and path alone")
	}
	p, err := Canonical(u.EscapedPath())
	if u.Path == "" {
		p, err = "/", nil
	}
	if err != nil || p != u.EscapedPath() && u.Path != "" {
		return nil, fmt.Errorf("forwardURL: the path must be in its plain form, without //, . and .. and with escapes only where they are needed")
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" && port != "443" {
		host += ":" + port
	}
	path := strings.TrimRight(p, "/")
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, fmt.Errorf("forwardURL: %w", err)
	}
	return &url.URL{Scheme: "https", Host: host, Path: plain, RawPath: path}, nil
}

// Audience of the token that goes with requests forwarded by r.
func (r Rule) Audience() string { return r.Forward.String() }

// isToken tells names of headers and methods (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isHeaderValue tells what a header can hold (RFC 9110, 5.5).
func isHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
