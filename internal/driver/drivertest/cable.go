package drivertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// gateway is the host's end of a machine's network, in its simplest form.
type gateway struct{ *stack.Stack }

// newGateway puts a network stack on a machine's cable. It takes a descriptor
// of its own, since a stack may still look at it when the machine has closed
// its.
func newGateway(t *testing.T, m driver.Machine) *gateway {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(m.Cable()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	ep, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: driver.MTU, PacketDispatchMode: fdbased.RecvMMsg,
		TXChecksumOffload: true, RXChecksumOffload: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateNIC(1, ep); err != nil {
		t.Fatal(err)
	}
	addr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{
		Address: tcpip.AddrFrom4(driver.GatewayAddr.As4()), PrefixLen: driver.Subnet.Bits(),
	}}
	if err := s.AddProtocolAddress(1, addr, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	t.Cleanup(func() {
		s.Destroy()
		unix.Close(fd)
	})
	return &gateway{s}
}

// dial connects to a port of the guest's; until the agent listens, the guest
// refuses.
func (g *gateway) dial(ctx context.Context, t *testing.T, port uint16) net.Conn {
	t.Helper()
	to := tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(driver.GuestAddr.As4()), Port: port}
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		c, err := gonet.DialContextTCP(try, g.Stack, to, ipv4.ProtocolNumber)
		cancel()
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		select {
		case <-ctx.Done():
			t.Fatalf("dial the agent: %v", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// ask sends a line to the agent and returns its answer.
func ask(t *testing.T, c net.Conn, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
	s, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s[:len(s)-1]
}

func cable(t *testing.T, b *bench) {
	m := b.start(t, small("cable"))
	g := newGateway(t, m)
	if got := ask(t, g.dial(b.ctx, t, driver.AgentPort), "ping"); got != "pong" {
		t.Errorf("the agent says %q", got)
	}
	// The other way: the guest reaches its gateway.
	l, err := gonet.ListenTCP(g.Stack, tcpip.FullAddress{NIC: 1, Port: 80}, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := b.sh(t, m, "connect", "tcp", driver.GatewayAddr.String()+":80"); got != "connected" {
		t.Errorf("to the gateway: %q", got)
	}
	// No IPv6 but on loopback, and that at once.
	begin := time.Now()
	out, code, err := m.Exec(b.ctx, []string{"/agent", "connect", "tcp6", "[2001:db8::1]:80"})
	if err != nil || code != 1 || time.Since(begin) > 3*time.Second {
		t.Errorf("IPv6: %s, code %d, %v, after %v", out, code, err, time.Since(begin))
	}
}

func cableBulk(t *testing.T, b *bench) {
	m := b.start(t, small("bulk"))
	c := newGateway(t, m).dial(b.ctx, t, driver.AgentPort)
	const size = 32 << 20
	if _, err := fmt.Fprintf(c, "bytes %d\n", size); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	n, err := io.CopyN(io.Discard, c, size)
	if err != nil {
		t.Fatalf("after %d bytes: %v", n, err)
	}
	t.Logf("%.0f MB/s", size/1e6/time.Since(begin).Seconds())
}
