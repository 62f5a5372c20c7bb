package netstack

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outside stands for the world: addresses that lead to listeners of the
// test, and names. It counts what reaches it.
type outside struct {
	mu      sync.Mutex
	routes  map[netip.AddrPort]string // to a loopback listener
	dials   map[netip.AddrPort]int
	records map[string][]dns.RR // by "name. TYPE"
	queries []string
	host    []netip.Addr
	deny    egress.DenyList
}

func newOutside() *outside {
	return &outside{routes: map[netip.AddrPort]string{}, dials: map[netip.AddrPort]int{}, records: map[string][]dns.RR{}}
}

func (o *outside) dial(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	o.mu.Lock()
	o.dials[dst]++
	to, ok := o.routes[dst]
	o.mu.Unlock()
	if !ok {
		return nil, unix.ECONNREFUSED
	}
	if to == "black hole" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if to == "no route" {
		return nil, &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

func (o *outside) route(addr, to string) netip.AddrPort {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := netip.MustParseAddrPort(addr)
	o.routes[a] = to
	return a
}

func (o *outside) dialled(addr string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dials[netip.MustParseAddrPort(addr)]
}

// clearDials returns what was dialled since it was called before.
func (o *outside) clearDials() map[netip.AddrPort]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.dials
	o.dials = map[netip.AddrPort]int{}
	return d
}

// record adds a resource record in zone file form.
func (o *outside) record(t testing.TB, zone string) {
	t.Helper()
	rr, err := dns.NewRR(zone)
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	k := rr.Header().Name + " " + dns.TypeToString[rr.Header().Rrtype]
	o.records[k] = append(o.records[k], rr)
}

func (o *outside) Exchange(_ context.Context, q *dns.Msg) (*dns.Msg, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name, typ := q.Question[0].Name, dns.TypeToString[q.Question[0].Qtype]
	o.queries = append(o.queries, name+" "+typ)
	if name == "broken." {
		return nil, errors.New("no server")
	}
	r := new(dns.Msg)
	r.SetReply(q)
	for range 8 {
		if rrs := o.records[name+" "+typ]; len(rrs) > 0 {
			r.Answer = append(r.Answer, rrs...)
			return r, nil
		}
		c := o.records[name+" CNAME"]
		if len(c) == 0 {
			break
		}
		r.Answer = append(r.Answer, c...)
		name = c[0].(*dns.CNAME).Target
	}
	if len(r.Answer) == 0 {
		r.Rcode = dns.RcodeNameError
	}
	return r, nil
}

func (o *outside) asked() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.queries...)
}

// guest is the sandbox's end of the cable.
type guest struct {
	t     testing.TB
	stack *stack.Stack
	link  *link
}

// newPair joins a Stack and a guest by a cable. Both end with the test.
func newPair(t testing.TB, o *outside, p egress.Policy) (*Stack, *guest) {
	t.Helper()
	return newPairWith(t, o, p, func(*Config) {})
}

func newPairWith(t testing.TB, o *outside, p egress.Policy, change func(*Config)) (*Stack, *guest) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Cable: fds[0], Policy: p, Hostname: "box", Upstream: o, Dial: o.dial, Deny: o.deny,
		Host:   egress.NewHostAddrs(func() ([]netip.Addr, error) { return o.host, nil }),
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	change(&cfg)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, fds[1])
	t.Cleanup(func() {
		g.close()
		s.Close()
		for _, fd := range fds { // the owner's descriptors must still be open
			if err := unix.Close(fd); err != nil {
				t.Errorf("close the cable: %v", err)
			}
		}
	})
	return s, g
}

func newGuest(t testing.TB, fd int) *guest {
	t.Helper()
	l, err := newLink(fd, func(string, netip.Addr, string, string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	l.from = tcpip.Address{}
	st := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := tuneTCP(st); err != nil {
		t.Fatal(err)
	}
	if e := st.CreateNIC(1, l); e != nil {
		t.Fatal(e)
	}
	if e := st.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{
		Address: tcpip.AddrFrom4(driver.GuestAddr.As4()), PrefixLen: 24}}, stack.AddressProperties{}); e != nil {
		t.Fatal(e)
	}
	st.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	return &guest{t, st, l}
}

func (g *guest) close() {
	g.link.stop()
	g.stack.Destroy()
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

func (g *guest) dial(addr string) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := gonet.DialContextTCP(ctx, g.stack, full(netip.MustParseAddrPort(addr)), ipv4.ProtocolNumber)
	if err != nil {
		return nil, errno(err)
	}
	return c, nil
}

func (g *guest) mustDial(addr string) *gonet.TCPConn {
	g.t.Helper()
	c, err := g.dial(addr)
	if err != nil {
		g.t.Fatalf("dial %s from the guest: %v", addr, err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) dialUDP(addr string) *gonet.UDPConn {
	g.t.Helper()
	to := full(netip.MustParseAddrPort(addr))
	c, err := gonet.DialUDP(g.stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) listen(port uint16) *gonet.TCPListener {
	g.t.Helper()
	ln, err := gonet.ListenTCP(g.stack, full(netip.AddrPortFrom(driver.GuestAddr, port)), ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { ln.Close() })
	return ln
}

// lookup asks the stack's DNS over "udp" or "tcp".
func (g *guest) lookup(network, name string, typ uint16) *dns.Msg {
	g.t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), typ)
	q.SetEdns0(4096, false)
	return g.exchange(network, q)
}

func (g *guest) exchange(network string, q *dns.Msg) *dns.Msg {
	g.t.Helper()
	var c net.Conn
	if network == "udp" {
		c = g.dialUDP("10.88.0.1:53")
	} else {
		c = g.mustDial("10.88.0.1:53")
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		g.t.Fatal(err)
	}
	dc := &dns.Conn{Conn: c, UDPSize: 4096}
	if network == "tcp" {
		dc.Conn = streamConn{c}
	} else {
		dc.Conn = packetConn{c}
	}
	if err := dc.WriteMsg(q); err != nil {
		g.t.Fatal(err)
	}
	r, err := dc.ReadMsg()
	if err != nil {
		g.t.Fatalf("DNS over %s: %v", network, err)
	}
	return r
}

// dns.Conn tells streams from packets by the type of the connection.
type streamConn struct{ net.Conn }

type packetConn struct{ net.Conn }

func (c packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := c.Read(b)
	return n, nil, err
}
func (c packetConn) WriteTo(b []byte, _ net.Addr) (int, error) { return c.Write(b) }

type testWriter struct{ testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if t, ok := w.TB.(*testing.T); ok && testing.Verbose() {
		t.Logf("%s", b)
	}
	return len(b), nil
}

// serve runs handle for each connection to a loopback listener.
func serve(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}
