package egress

import (
	"fmt"
	"net/netip"
	"strings"
)

// DenyList is what a server denies to all its sandboxes, above every policy.
// Its zero value denies nothing. Immutable.
type DenyList struct {
	names   *patterns // nil: none
	subnets []netip.Prefix
}

// ParseDenyList reads a list of names, as in the allow list of a policy, and
// of addresses and ranges: one a line or with commas between, where "#" begins
// a comment. An error names the entry.
func ParseDenyList(text string) (DenyList, error) {
	var d DenyList
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for entry := range strings.SplitSeq(line, ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			if err := d.add(entry); err != nil {
				return DenyList{}, err
			}
		}
	}
	return d, nil
}

func (d *DenyList) add(entry string) error {
	if _, err := netip.ParseAddr(entry); err == nil || strings.Contains(entry, "/") {
		p, err := subnet(entry)
		if err != nil {
			return err
		}
		d.subnets = append(d.subnets, p)
		return nil
	}
	p, err := normalPattern(entry)
	if err != nil {
		return fmt.Errorf("%w (an address or range is an entry, too)", err)
	}
	if d.names == nil {
		d.names = newPatterns()
	}
	d.names.add(p)
	return nil
}

// name refuses a name (normalised) that is on the list.
func (d DenyList) name(name string) (Verdict, bool) {
	pat, ok := d.names.match(name)
	if !ok {
		return Verdict{}, false
	}
	return refuse("server denies "+pat, "the server denies %q to all sandboxes", name), true
}

// addr refuses an address that is on the list.
func (d DenyList) addr(a netip.Addr) (Verdict, bool) {
	p, ok := findPrefix(d.subnets, a)
	if !ok {
		return Verdict{}, false
	}
	return refuse("server denies "+p.String(), "the server denies %s to all sandboxes", a), true
}

// any refuses if one of names is on the list.
func (d DenyList) any(names []string) (Verdict, bool) {
	if d.names == nil {
		return Verdict{}, false
	}
	for _, n := range names {
		if v, ok := d.name(n); ok {
			return v, true
		}
	}
	return Verdict{}, false
}
