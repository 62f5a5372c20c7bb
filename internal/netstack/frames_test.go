package netstack

import (
	"encoding/binary"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// newRaw is a Stack whose other end of the cable is the test itself.
func newRaw(t testing.TB, o *outside, p egress.Policy) (*Stack, int) {
	t.Helper()
	s, g := newPair(t, o, p)
	fd, err := unix.Dup(int(g.link.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	g.link.stop()
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	tv := unix.Timeval{Sec: 10}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return s, fd
}

// syn is a TCP SYN from src to dst, port 80.
func syn(src, dst [4]byte, sport uint16) []byte {
	p := make([]byte, 40)
	p[0], p[8], p[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(p[2:], 40)
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(p[20:], sport)
	binary.BigEndian.PutUint16(p[22:], 80)
	p[32], p[33] = 0x50, 0x02
	binary.BigEndian.PutUint16(p[34:], 65535)
	return p
}

var guestIP, peerIP = [4]byte{10, 88, 0, 2}, [4]byte{93, 0, 0, 1}

func TestSpoofedAndForeignPacketsAreDropped(t *testing.T) {
	o := newOutside()
	s, fd := newRaw(t, o, egress.AllowAll())
	var bad [][]byte
	for _, src := range [][4]byte{{10, 88, 0, 3}, {10, 88, 0, 1}, {127, 0, 0, 1}, {8, 8, 8, 8}, {0, 0, 0, 0}, {255, 255, 255, 255}} {
		bad = append(bad, syn(src, peerIP, 999))
	}
	v6 := make([]byte, 60)
	v6[0] = 0x60
	bad = append(bad, v6, v6, []byte{0x45}, []byte{0}, syn(guestIP, peerIP, 1)[:19])
	ping, gre := syn(guestIP, peerIP, 0), syn(guestIP, peerIP, 0)
	ping[9], ping[20], gre[9] = 1, 8, 47
	bad = append(bad, ping, gre, gre, gre, syn(guestIP, [4]byte{224, 0, 0, 251}, 1))
	for _, p := range bad {
		if _, err := unix.Write(fd, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.Write(fd, syn(guestIP, peerIP, 1000)); err != nil { // the outside refuses it
		t.Fatal(err)
	}
	b := make([]byte, 65536)
	n, err := unix.Read(fd, b)
	if err != nil || n < 40 || binary.BigEndian.Uint16(b[22:]) != 1000 || b[33]&0x04 == 0 {
		t.Fatalf("the first answer is not the reset of the only good packet: %x, %v", b[:max(n, 0)], err)
	}
	if d := s.link.dropped.Load(); d != uint64(len(bad)) {
		t.Errorf("%d dropped, want %d", d, len(bad))
	}
	if n := o.dialled("93.0.0.1:80"); n != 1 {
		t.Errorf("%d dials", n)
	}
	seen := map[string]int{}
	for _, d := range decisions(s) {
		if !d.Allowed {
			seen[d.Proto+", "+d.Rule]++
		}
	}
	// Once for each destination, however many there are.
	want := map[string]int{"tcp, spoofed source": 1, "ipv6, IPv6": 1, "ip, malformed packet": 1, "icmp, protocol": 1, "ip 47, protocol": 1, "tcp, multicast": 1}
	if !maps.Equal(seen, want) {
		t.Errorf("recorded %v, want %v", seen, want)
	}
	refused := uint64(0)
	for _, x := range s.Log().Summary().Sums {
		refused += x.Refused
	}
	if refused != uint64(len(bad)) {
		t.Errorf("%d refusals are counted, want %d", refused, len(bad))
	}
}

// A guest that leaves its handshakes half done holds nothing beyond Close
// or a change of policy.
func TestUnfinishedHandshake(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, echo))
	s, fd := newRaw(t, o, egress.AllowAll())
	for i := range 30 {
		if _, err := unix.Write(fd, syn(guestIP, peerIP, uint16(2000+i))); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 65536)
	for range 30 { // each is answered by SYN+ACK, never by us with an ACK
		if n, err := unix.Read(fd, b); err != nil || b[33]&0x12 != 0x12 {
			t.Fatalf("%x, %v", b[:max(n, 0)], err)
		}
	}
	await(t, "30 flows", func() bool { return s.flows.count(egress.TCP) == 30 })
	s.SetPolicy(egress.DenyAll())
	await(t, "the flows to be cut", func() bool { return s.flows.count(egress.TCP) == 0 })
	s.SetPolicy(egress.AllowAll())
	if _, err := unix.Write(fd, syn(guestIP, peerIP, 3000)); err != nil {
		t.Fatal(err)
	}
	await(t, "a flow", func() bool { return s.flows.count(egress.TCP) == 1 })
	start := time.Now()
	s.Close()
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("Close took %v", d)
	}
}

// A guest that never reads its cable stalls itself alone, and not Close.
func TestGuestThatNeverReads(t *testing.T) {
	o := newOutside()
	s, fd := newRaw(t, o, egress.AllowAll())
	for i := range 20000 { // each one calls for a reset
		if _, err := unix.Write(fd, syn(guestIP, peerIP, uint16(1024+i))); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		if i == 300 {
			if err := unix.SetNonblock(fd, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := time.Now()
	s.Close()
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("Close took %v", d)
	}
}

// The guest's end closes first, as when its machine dies.
func TestGuestGoesAway(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, echo))
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Cable: fds[0], Policy: egress.AllowAll(), Dial: o.dial, Upstream: o})
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[0])
	unix.Close(fds[1])
	s.link.wg.Wait()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { s.Close() })
	}
	wg.Wait()
}

func TestNewRefusesOtherDescriptors(t *testing.T) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	for _, fd := range []int{p[0], -1} {
		if _, err := New(Config{Cable: fd}); err == nil || !strings.Contains(err.Error(), "cable") {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(syn(guestIP, peerIP, 1))
	f.Add(syn(guestIP, [4]byte{10, 88, 0, 1}, 53))
	frag := syn(guestIP, peerIP, 5)
	frag[6] = 0x20
	f.Add(frag)
	icmp := syn(guestIP, [4]byte{10, 88, 0, 1}, 0)
	icmp[9], icmp[20] = 1, 8
	f.Add(icmp)
	udp := syn(guestIP, [4]byte{10, 88, 0, 1}, 7)
	udp[9], udp[23], udp[25] = 17, 53, 20
	f.Add(udp)
	o := newOutside()
	s, fd := newRaw(f, o, egress.AllowAll())
	if err := unix.SetNonblock(fd, true); err != nil {
		f.Fatal(err)
	}
	sink := make([]byte, 65536)
	f.Fuzz(func(t *testing.T, b []byte) {
		// The header that every packet must have, over what the fuzzer made.
		if len(b) >= 20 {
			b[0] = 0x40 | b[0]&0x0f
			copy(b[12:], guestIP[:])
			binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
			b[10], b[11] = 0, 0
			sum, hl := uint32(0), min(int(b[0]&0x0f)*4, len(b)&^1)
			for i := 0; i < hl; i += 2 {
				sum += uint32(binary.BigEndian.Uint16(b[i:]))
			}
			sum = sum>>16 + sum&0xffff
			binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
		}
		if len(b) > 0 && len(b) < 65520 {
			_, _ = unix.Write(fd, b)
		}
		for {
			if n, err := unix.Read(fd, sink); n <= 0 || err != nil {
				break
			}
		}
		for a := range o.clearDials() {
			if v := s.judge.Recheck(egress.TCP, a, nil); !v.Allowed {
				t.Errorf("dialled %s", a)
			}
		}
	})
}
