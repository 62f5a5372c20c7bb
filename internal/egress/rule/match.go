package rule

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// Request is what rules look at.
type Request struct {
	Method string
	Path   string // canonical
	Query  string // as sent, without "?"
	Host   string
	Header http.Header
}

// Set is the rules of one domain, in order.
type Set []Rule

// ErrAmbiguous: servers read the path in ways that different rules match.
var ErrAmbiguous = errors.New("servers read this path in different ways, and the network policy's rules differ for them; write it without escaped slashes, \"..\" and \";\"")

// Find returns the index of the first rule that matches, -1 for none.
func (s Set) Find(r Request) (int, error) {
	paths := readings(r.Path)
	var query []pair
	if slices.ContainsFunc(s, func(x Rule) bool { return len(x.match.query) > 0 }) {
		query = queryPairs(r.Query)
	}
	header := headerPairs(s, r)
	found := -1
	for n, p := range paths {
		i := slices.IndexFunc(s, func(x Rule) bool { return x.match.ok(r.Method, p, query, header) })
		if n == 0 {
			found = i
		} else if i != found {
			return -1, ErrAmbiguous
		}
	}
	return found, nil
}

// match is a compiled api.RuleMatch. Every part must agree.
type match struct {
	path          *value
	method        []string
	query, header []pairMatch
}

func (m match) ok(method, path string, query, header []pair) bool {
	if len(m.method) > 0 && !slices.Contains(m.method, method) {
		return false
	}
	if !m.path.ok(path) {
		return false
	}
	any := func(in []pair) func(pairMatch) bool {
		return func(pm pairMatch) bool { return !slices.ContainsFunc(in, pm.ok) }
	}
	return !slices.ContainsFunc(m.query, any(query)) && !slices.ContainsFunc(m.header, any(header))
}

type pair struct{ key, value string }

// pairMatch agrees with an entry whose key and value both agree.
type pairMatch struct{ key, value *value }

func (m pairMatch) ok(p pair) bool { return m.key.ok(p.key) && m.value.ok(p.value) }

// value matches a text; nil matches every one.
type value struct {
	exact, prefix *string
	regex         *regexp.Regexp
}

func (v *value) ok(s string) bool {
	switch {
	case v == nil:
		return true
	case v.exact != nil:
		return s == *v.exact
	case v.prefix != nil:
		return strings.HasPrefix(s, *v.prefix)
	}
	return v.regex.MatchString(s)
}

// queryPairs reads a query as servers do. What cannot be decoded stands for
// itself.
func queryPairs(q string) []pair {
	var out []pair
	for part := range strings.SplitSeq(q, "&") {
		if part == "" {
			continue
		}
		k, v, _ := strings.Cut(part, "=")
		out = append(out, pair{decoded(k), decoded(v)})
	}
	return out
}

func decoded(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

// headerPairs has the names in lower case.
func headerPairs(s Set, r Request) []pair {
	if !slices.ContainsFunc(s, func(x Rule) bool { return len(x.match.header) > 0 }) {
		return nil
	}
	out := []pair{{"host", r.Host}}
	for k, vs := range r.Header {
		for _, v := range vs {
			out = append(out, pair{strings.ToLower(k), v})
		}
	}
	return out
}

func compileMatch(in *api.RuleMatch) (m match, err error) {
	if in == nil {
		return m, nil
	}
	if m.path, err = compileValue("path", in.Path, pathForm); err != nil {
		return m, err
	}
	for i, method := range in.Method {
		if !isToken(method) {
			return m, fmt.Errorf("method[%d]: %.40q is no HTTP method; write it like \"POST\"", i, method)
		}
		m.method = append(m.method, strings.ToUpper(method))
	}
	if m.query, err = compilePairs("queryString", in.QueryString, nil); err != nil {
		return m, err
	}
	m.header, err = compilePairs("headers", in.Headers, strings.ToLower)
	return m, err
}

func compilePairs(field string, in []api.KeyValueMatch, keyForm func(string) string) (out []pairMatch, err error) {
	if len(in) > maxMatchers {
		return nil, fmt.Errorf("%s: %d entries, at most %d are possible", field, len(in), maxMatchers)
	}
	for i, kv := range in {
		var pm pairMatch
		if kv.Key == nil && kv.Value == nil {
			return nil, fmt.Errorf("%s[%d]: give key, value or both", field, i)
		}
		if pm.key, err = compileValue(fmt.Sprintf("%s[%d].key", field, i), kv.Key, keyForm); err != nil {
			return nil, err
		}
		if pm.value, err = compileValue(fmt.Sprintf("%s[%d].value", field, i), kv.Value, nil); err != nil {
			return nil, err
		}
		out = append(out, pm)
	}
	return out, nil
}

// compileValue prepares a matcher; form puts its texts into the form of what
// they are compared with.
func compileValue(field string, in *api.StringMatch, form func(string) string) (*value, error) {
	if in == nil {
		return nil, nil
	}
	if form == nil {
		form = func(s string) string { return s }
	}
	v, n := &value{}, 0
	if in.Exact != nil {
		s := form(*in.Exact)
		v.exact, n = &s, n+1
	}
	if in.StartsWith != nil {
		s := form(*in.StartsWith)
		v.prefix, n = &s, n+1
	}
	if in.Regex != nil {
		n++
		if len(*in.Regex) > maxRegex {
			return nil, fmt.Errorf("%s.regex: has %d bytes, at most %d are possible", field, len(*in.Regex), maxRegex)
		}
		expr := *in.Regex
		if field != "path" && form("A") == "a" { // names of headers have no case
			expr = "(?i:" + expr + ")"
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, fmt.Errorf("%s.regex: is no RE2 expression: %w", field, err)
		}
		v.regex = re
	}
	if n != 1 {
		return nil, fmt.Errorf("%s: give exactly one of exact, startsWith and regex, not %d", field, n)
	}
	return v, nil
}

// pathForm escapes a rule's path as canonical paths are; what it means by
// slashes and dots is left to it.
func pathForm(s string) string {
	if e, err := normalEscapes(s); err == nil {
		return e
	}
	return s
}
