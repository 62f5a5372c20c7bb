package netstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

func TestEchoBothHalves(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, echo))
	s, g := newPair(t, o, egress.AllowAll())
	c := g.mustDial("93.0.0.1:80")
	want := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = c.Write(want)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
	}
	in, out := s.Usage()
	if in != uint64(len(want)) || out != uint64(len(want)) {
		t.Errorf("usage %d in, %d out, want %d each", in, out, len(want))
	}
}

// The peer speaks only after the guest has closed its side, and the other
// way round.
func TestHalfClose(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "got %d", len(b))
	}))
	heard := make(chan string, 1)
	o.route("93.0.0.1:81", serve(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "hello")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	}))
	_, g := newPair(t, o, egress.AllowAll())
	c := g.mustDial("93.0.0.1:80")
	fmt.Fprint(c, "12345")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "got 5" {
		t.Errorf("%q, %v", b, err)
	}
	d := g.mustDial("93.0.0.1:81")
	if b, err := io.ReadAll(d); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	fmt.Fprint(d, "after your end")
	d.Close()
	if h := <-heard; h != "after your end" {
		t.Errorf("peer heard %q", h)
	}
}

func TestRefusals(t *testing.T) {
	o := newOutside()
	o.host = []netip.Addr{netip.MustParseAddr("93.0.0.9")}
	up := serve(t, echo)
	targets := []string{"93.0.0.1:80", "93.0.0.9:80", "10.88.0.1:80", "10.88.0.1:61000", "10.88.0.3:80", "169.254.169.254:80", "10.0.0.1:80",
		"192.168.1.1:443", "172.16.0.1:22", "100.100.100.200:80", "100.64.0.1:80", "0.0.0.5:80", "240.0.0.1:80"}
	for _, a := range targets {
		o.route(a, up)
	}
	s, g := newPair(t, o, egress.AllowAll())
	for i, a := range targets {
		if i == 0 {
			g.mustDial(a).Close()
			s.SetPolicy(egress.DenyAll())
		}
		if i == 1 {
			if _, err := g.dial(targets[0]); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("deny-all: %v", err)
			}
			s.SetPolicy(egress.AllowAll())
		}
		if i == 0 {
			continue
		}
		start := time.Now()
		if _, err := g.dial(a); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial %s: %v, want connection refused", a, err)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("dial %s took %v", a, d)
		}
		if o.dialled(a) != 0 {
			t.Errorf("%s was dialled", a)
		}
	}
	o.route("93.0.0.3:80", "no route")
	if _, err := g.dial("93.0.0.3:80"); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("a peer without a route: %v", err)
	}
	await(t, "no packet to be kept", func() bool {
		s.dials.mu.Lock()
		defer s.dials.mu.Unlock()
		return len(s.dials.syns) == 0
	})
	if _, err := g.dial("93.0.0.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a peer that refuses: %v", err)
	}
	d := decisions(s)
	if len(d) < len(targets) || d[0].Rule != "allow-all" || d[1].Rule != "deny-all" {
		t.Errorf("decisions: %+v", d)
	}
}

func TestSetPolicyCutsOpenConnections(t *testing.T) {
	o := newOutside()
	ended := make(chan error, 1)
	o.route("93.0.0.1:80", serve(t, func(c *net.TCPConn) {
		_, err := io.Copy(c, c)
		ended <- err
	}))
	o.route("93.0.0.2:80", serve(t, echo))
	o.record(t, "keep.test. 60 IN A 93.0.0.2")
	s, g := newPair(t, o, egress.AllowAll())
	g.lookup("udp", "keep.test", 1)
	cut, kept := g.mustDial("93.0.0.1:80"), g.mustDial("93.0.0.2:80")
	roundTrip(t, cut)
	roundTrip(t, kept)
	s.SetPolicy(policy(t, `{"allow":["keep.test"]}`))
	if _, err := cut.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the forbidden connection ended with %v, want a reset", err)
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer saw %v, want a reset", err)
	}
	roundTrip(t, kept)
	await(t, "one flow to be left", func() bool { return s.flows.count(egress.TCP) == 1 })
}

func roundTrip(t testing.TB, c net.Conn) {
	t.Helper()
	b := make([]byte, 4)
	_, err := c.Write([]byte("ping"))
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	if err != nil || string(b) != "ping" {
		t.Fatalf("round trip: %q, %v", b, err)
	}
}

func TestDialIn(t *testing.T) {
	o := newOutside()
	s, g := newPair(t, o, egress.DenyAll())
	ln := g.listen(8000)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	ctx := context.Background()
	c, err := s.DialContext(ctx, 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.LocalAddr().(*net.TCPAddr).IP.String() != "10.88.0.1" {
		t.Errorf("dialled from %s", c.LocalAddr())
	}
	roundTrip(t, c)
	if in, out := s.Usage(); in != 4 || out != 4 {
		t.Errorf("usage %d, %d", in, out)
	}
	if _, err := s.DialContext(ctx, 8001); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nothing listens: %v", err)
	}
	if _, err := s.DialContext(ctx, 70000); err == nil || !strings.Contains(err.Error(), "70000") {
		t.Errorf("bad port: %v", err)
	}
	if in, _ := s.Usage(); in != 4 {
		t.Errorf("usage %d", in)
	}
	s.Close()
	if _, err := s.DialContext(ctx, 8000); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A guest that is not there yet, or never answers, must not hold the dialler.
func TestDialInObeysContext(t *testing.T) {
	s, g := newPair(t, newOutside(), egress.DenyAll())
	g.stack.DisableNIC(1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.DialContext(ctx, 80); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.DialContext(context.Background(), 80); !errors.Is(err, ErrClosed) {
			t.Errorf("dial across Close: %v", err)
		}
	})
	s.Close()
	wg.Wait()
}

func TestCloseEndsEverything(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, echo))
	o.route("93.0.0.1:81", "black hole")
	s, g := newPair(t, o, egress.AllowAll())
	var wg sync.WaitGroup
	for range 20 {
		c := g.mustDial("93.0.0.1:80")
		roundTrip(t, c)
		wg.Go(func() {
			if _, err := g.dial("93.0.0.1:81"); err == nil {
				t.Error("the black hole answered")
			}
		})
	}
	await(t, "dials in flight", func() bool { return s.flows.count(egress.TCP) == 40 })
	s.Close()
	if n := s.flows.count(egress.TCP); n != 0 {
		t.Errorf("%d flows after Close", n)
	}
	g.stack.Close()
	wg.Wait()
}

// await polls; the test's own time-out bounds it.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func TestManyConnectionsAtOnce(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, echo))
	_, g := newPair(t, o, egress.AllowAll())
	const n = maxDials + 50
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			c, err := g.dial("93.0.0.1:80")
			if err != nil {
				t.Errorf("dial %d: %v", i, err)
				return
			}
			defer c.Close()
			want := sha256.Sum256(payload(i, 64<<10))
			go func() {
				_, _ = c.Write(payload(i, 64<<10))
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || sha256.Sum256(got) != want {
				t.Errorf("connection %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	close(start)
	wg.Wait()
}

func payload(seed, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

func TestConnectionLimit(t *testing.T) {
	fs := newFlows()
	ctx := context.Background()
	var all []*flow
	for range maxTCP {
		all = append(all, fs.add(ctx, egress.TCP, netip.AddrPort{}, maxTCP))
	}
	if fs.add(ctx, egress.TCP, netip.AddrPort{}, maxTCP) != nil {
		t.Error("the limit does not hold")
	}
	if fs.add(ctx, egress.UDP, netip.AddrPort{}, maxUDP) == nil {
		t.Error("TCP uses up the limit of UDP")
	}
	for _, f := range all {
		fs.remove(f)
	}
	if fs.add(ctx, egress.TCP, netip.AddrPort{}, maxTCP) == nil {
		t.Error("removed flows still count")
	}
	fs.abortAll()
}

func TestWarningsDoNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	s := &Stack{log: slog.New(slog.NewTextHandler(&log, nil)), flows: newFlows()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer s.cancel()
	for range maxUDP {
		defer s.flows.remove(s.flows.add(s.ctx, egress.UDP, netip.AddrPort{}, maxUDP))
	}
	id := stack.TransportEndpointID{LocalAddress: tcpip.AddrFrom4([4]byte{203, 0, 113, 1}), LocalPort: 9}
	for range 1000 {
		if s.handleUDP(id, nil) {
			t.Fatal("the limit does not hold")
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("1000 refused datagrams made %d lines:\n%.500s", n, log.String())
	}
}

func TestUDP(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(b[:n], from)
		}
	}()
	o := newOutside()
	o.route("93.0.0.1:443", pc.LocalAddr().String())
	o.route("10.0.0.1:443", pc.LocalAddr().String())
	s, g := newPair(t, o, egress.AllowAll())
	c := g.dialUDP("93.0.0.1:443")
	for _, n := range []int{1, 1400, 60000, 0, 7} {
		want := payload(n, n)
		if _, err := c.Write(want); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 65536)
		k, err := c.Read(b)
		if err != nil || !bytes.Equal(b[:k], want) {
			t.Fatalf("echo of %d bytes: %d, %v", n, k, err)
		}
	}
	refused := func(addr string) {
		t.Helper()
		c := g.dialUDP(addr)
		_, _ = c.Write([]byte("x"))
		await(t, "the datagram to "+addr+" to be refused", func() bool {
			// gonet's Read does not wake up for an ICMP error.
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return err != nil && strings.Contains(err.Error(), "refused")
		})
	}
	refused("10.0.0.1:443")
	refused("10.88.0.1:54")
	s.SetPolicy(policy(t, `{"allow":["*"],"subnets":{"allow":["93.0.0.0/8"]}}`))
	await(t, "the session to be cut", func() bool { return s.flows.count(egress.UDP) == 0 })
	refused("93.0.0.1:443")
	s.SetPolicy(egress.DenyAll())
	refused("93.0.0.1:443")
	if n := o.dialled("10.0.0.1:443"); n != 0 {
		t.Errorf("the private address was dialled %d times", n)
	}
}

// Close in the middle of heavy traffic both ways, the guest still there.
func TestCloseUnderLoad(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, discard))
	o.route("93.0.0.2:80", serve(t, produce))
	for range 20 {
		s, g := newPair(t, o, egress.AllowAll())
		var wg sync.WaitGroup
		for range 3 {
			up, down := g.mustDial("93.0.0.1:80"), g.mustDial("93.0.0.2:80")
			wg.Go(func() { _, _ = io.Copy(struct{ io.Writer }{up}, endless{}) })
			wg.Go(func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{down}) })
		}
		await(t, "traffic", func() bool {
			in, out := s.Usage()
			return in > 1<<20 && out > 1<<20
		})
		start := time.Now()
		s.Close()
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Close took %v", d)
		}
		g.close()
		wg.Wait()
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestHostDial(t *testing.T) {
	addr := netip.MustParseAddrPort(serve(t, echo))
	c, err := hostDial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	roundTrip(t, c)
	if c.RemoteAddr().String() != addr.String() {
		t.Errorf("connected to %s", c.RemoteAddr())
	}
}
