package netstack

import (
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

// refusePacket notes a packet that admit has refused.
type refusePacket func(proto string, to netip.Addr, rule, format string, args ...any)

// accept is the guard against everything but TCP, UDP and the errors of ICMP,
// over IPv4, from the guest's address.
func (l *link) accept(pkt *stack.PacketBuffer) bool {
	b, ok := pkt.Data().PullUp(header.IPv4MinimumSize)
	if !ok {
		l.refuse("ip", netip.Addr{}, "malformed packet", "a packet of %d bytes is none", pkt.Data().Size())
		return false
	}
	if header.IPVersion(b) != header.IPv4Version {
		l.refuseOther(pkt)
		return false
	}
	h := header.IPv4(b)
	if l.from == (tcpip.Address{}) {
		return true
	}
	to := netip.AddrFrom4(h.DestinationAddress().As4())
	if h.SourceAddress() != l.from {
		l.refuse(protoName(h.Protocol()), to, "spoofed source", "the packet says that it comes from %s, and the sandbox is %s", h.SourceAddress(), driver.GuestAddr)
		return false
	}
	if header.IsV4MulticastAddress(h.DestinationAddress()) { // the stack would drop it unseen
		l.refuse(protoName(h.Protocol()), to, "multicast", "%s is a multicast address, which no policy opens", to)
		return false
	}
	switch h.TransportProtocol() {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	case header.ICMPv4ProtocolNumber:
		return l.acceptICMP(pkt, h, to)
	}
	l.refuse(protoName(h.Protocol()), to, "protocol", "only TCP and UDP leave a sandbox")
	return false
}

// acceptICMP takes what the guest's kernel has to say of the packets that it
// got, and no questions: nobody would answer them.
func (l *link) acceptICMP(pkt *stack.PacketBuffer, h header.IPv4, to netip.Addr) bool {
	n := int(h.HeaderLength())
	b, ok := pkt.Data().PullUp(n + 1)
	if ok && h.FragmentOffset() == 0 {
		switch header.ICMPv4Type(b[n]) {
		case header.ICMPv4DstUnreachable, header.ICMPv4SrcQuench, header.ICMPv4TimeExceeded, header.ICMPv4ParamProblem:
			return true
		}
	}
	l.refuse("icmp", to, "protocol", "only TCP and UDP leave a sandbox: nothing answers a ping")
	return false
}

// refuseOther notes a packet that is not of IPv4.
func (l *link) refuseOther(pkt *stack.PacketBuffer) {
	var to netip.Addr
	if b, ok := pkt.Data().PullUp(header.IPv6MinimumSize); ok && header.IPVersion(b) == header.IPv6Version {
		to = netip.AddrFrom16(header.IPv6(b).DestinationAddress().As16())
	}
	l.refuse("ipv6", to, "IPv6", "sandboxes have no IPv6")
}

func protoName(p uint8) string {
	switch tcpip.TransportProtocolNumber(p) {
	case header.TCPProtocolNumber:
		return egress.TCP
	case header.UDPProtocolNumber:
		return egress.UDP
	case header.ICMPv4ProtocolNumber:
		return "icmp"
	}
	return fmt.Sprintf("ip %d", p)
}
