// Package preview serves the ports of sandboxes to browsers and clients: a
// reverse proxy from public host names, one for each port, to HTTP servers
// inside. What they send passes as it is, chunk by chunk, whatever its size.
package preview

import (
	"net"
	"strings"
)

// localDomain is where previews are without a domain of their own. Browsers
// resolve every name below it to this machine (RFC 6761, 6.3).
const localDomain = "localhost"

// Hosts tells previews from other requests by their host name.
type Hosts struct {
	// Domain is the preview domain, such as "preview.example.com"; empty
	// means that there is none. Names below localhost work in any case.
	Domain string
}

// Subdomain is the label of host, a Host header, that names a port of a
// sandbox. ok is false where host is no preview's: then it is the API's.
func (h Hosts) Subdomain(host string) (sub string, ok bool) {
	name := hostName(host)
	for _, d := range []string{hostName(h.Domain), localDomain} {
		if sub, ok = strings.CutSuffix(name, "."+d); ok && d != "" && sub != "" {
			return sub, !strings.Contains(sub, ".")
		}
	}
	return "", false
}

// IsPreview reports whether host, a Host header, is a preview's. A name with
// several labels before the domain is one too: an unknown one.
func (h Hosts) IsPreview(host string) bool {
	name := hostName(host)
	for _, d := range []string{hostName(h.Domain), localDomain} {
		if sub, ok := strings.CutSuffix(name, "."+d); ok && d != "" && sub != "" {
			return true
		}
	}
	return false
}

// hostName is host in lower case, without port and trailing dot.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
