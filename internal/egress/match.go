package egress

import (
	"fmt"
	"net/netip"
	"strings"
)

const (
	maxName  = 253 // octets of a name without its trailing dot (RFC 1035)
	maxLabel = 63
)

// NormalName returns name in lower case and without a trailing dot. Names
// are compared in this form only.
func NormalName(name string) string {
	return strings.TrimSuffix(asciiLower(name), ".")
}

// asciiLower leaves bytes outside ASCII alone: DNS folds only A–Z, and
// Unicode folding would make "K" (Kelvin sign) equal "k".
func asciiLower(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// normalPattern checks and normalises one domain of a policy.
func normalPattern(s string) (string, error) {
	p := NormalName(strings.TrimSpace(s))
	switch {
	case p == "":
		return "", fmt.Errorf("%q is empty; give a name such as \"example.com\", \"*.example.com\" or \"*\"", s)
	case strings.Contains(p, "://") || strings.ContainsAny(p, "/?#@"):
		return "", fmt.Errorf("%q is a URL; give the host name alone", s)
	case len(p) > maxName:
		return "", fmt.Errorf("%.40q… is longer than %d characters", s, maxName)
	}
	if _, err := netip.ParseAddr(strings.Trim(p, "[]")); err == nil {
		return "", fmt.Errorf("%q is an address; put it into subnets.allow", s)
	}
	if strings.Contains(p, ":") {
		return "", fmt.Errorf("%q has a port; give the host name alone, all its ports are allowed", s)
	}
	for label := range strings.SplitSeq(p, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%q: %w", s, err)
		}
	}
	return p, nil
}

func checkLabel(l string) error {
	if l == "*" {
		return nil
	}
	if l == "" {
		return fmt.Errorf("two dots in a row, or one in front; to allow all names below a domain write \"*.domain\"")
	}
	if len(l) > maxLabel {
		return fmt.Errorf("a label is longer than %d characters", maxLabel)
	}
	for _, c := range []byte(l) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '*':
			return fmt.Errorf("\"*\" must be a whole label, as in \"*.example.com\" or \"www.*.com\"")
		case c >= 0x80:
			return fmt.Errorf("write names outside ASCII in their xn-- form")
		default:
			return fmt.Errorf("the character %q cannot be in a host name", c)
		}
	}
	return nil
}

// patterns finds the pattern that a name matches. It is a tree of labels
// from the right, so a look-up costs the same for ten patterns and for ten
// thousand.
type patterns struct {
	next  map[string]*patterns // by label; "*" is an inner one-label wildcard
	exact string               // the pattern that ends here
	below string               // the pattern "*.…" that ends here
}

func newPatterns() *patterns { return &patterns{} }

func (t *patterns) add(pattern string) {
	n := t
	rest := pattern
	deep := pattern == "*" || strings.HasPrefix(pattern, "*.")
	if deep {
		rest = strings.TrimPrefix(strings.TrimPrefix(pattern, "*"), ".")
	}
	for rest != "" {
		var label string
		rest, label = cutLast(rest)
		if n.next == nil {
			n.next = map[string]*patterns{}
		}
		if n.next[label] == nil {
			n.next[label] = &patterns{}
		}
		n = n.next[label]
	}
	if deep {
		n.below = pattern
	} else {
		n.exact = pattern
	}
}

// match returns the most specific pattern that name (normalised) matches.
func (t *patterns) match(name string) (string, bool) {
	// A backslash is an escape of DNS's text form: the name has a label with
	// a dot or another odd byte inside, and its labels are not what they seem.
	if t == nil || name == "" || strings.Contains(name, "\\") {
		return "", false
	}
	found := ""
	at := []*patterns{t}
	for rest := name; len(at) > 0; {
		for _, n := range at {
			if n.below != "" {
				found = n.below // deeper is more specific
			}
		}
		var label string
		rest, label = cutLast(rest)
		var then []*patterns
		for _, n := range at {
			if m := n.next["*"]; m != nil && label != "" {
				then = append(then, m)
			}
			if m := n.next[label]; m != nil && label != "*" {
				then = append(then, m)
			}
		}
		if rest == "" {
			for _, n := range then {
				if n.exact != "" {
					found = n.exact
				}
			}
			break
		}
		at = then
	}
	return found, found != ""
}

// cutLast splits the last label off.
func cutLast(s string) (rest, label string) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}
