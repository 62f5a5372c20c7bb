package cli

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// literalAddress reads a host as programs do that take it for an address
// rather than a name: also 0x7f.1, 0177.0.0.1 and 2130706433, which inet_aton
// knows.
func literalAddress(host string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return a, true
	}
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 0, 32)
		if strings.ContainsAny(p, "_oObB") || err != nil {
			return netip.Addr{}, false
		}
		rest := 8 * (5 - len(parts)) // bits that the last part fills
		switch {
		case i < len(parts)-1 && n > 255, i == len(parts)-1 && n >= 1<<rest:
			return netip.Addr{}, false
		case i < len(parts)-1:
			value |= n << (8 * (3 - i))
		default:
			value |= n
		}
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(value))
	return netip.AddrFrom4(b), true
}
