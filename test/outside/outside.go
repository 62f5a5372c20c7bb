//go:build linux

// Package outside gives a test a network of its own: the test runs again in a
// network namespace whose only way out leads to a second one, which answers
// for every address there is, and notes each packet that arrives.
package outside

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The wire between the two namespaces. DNS is a resolver's address that looks
// public; give it to the server as GLOVEBOX_DNS.
const (
	DNS      = "9.9.9.53"
	here     = "172.31.255.1"
	there    = "172.31.255.2"
	bits     = 30
	childEnv = "OUTSIDE_CHILD"
)

// Net is the outside.
type Net struct {
	calls chan func() // run in its namespace
	ca    *authority

	mu      sync.Mutex // guards what follows
	packets []string
	records map[string][]string // addresses of names, lower case, with a dot
	queries []string
	turn    map[string]int
}

// Run runs f with an outside. The test must call it first of all and do
// nothing after it.
func Run(t *testing.T, f func(t *testing.T, o *Net)) {
	t.Helper()
	if os.Getenv(childEnv) == "" {
		again(t)
		return
	}
	o, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	f(t, o)
}

// Open makes the outside of this process, which must have a network namespace
// of its own. It lives as long as the process.
func Open() (*Net, error) {
	o := &Net{calls: make(chan func()), records: map[string][]string{}, turn: map[string]int{}}
	var err error
	if o.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	if err := o.build(); err != nil {
		return nil, fmt.Errorf("build the outside: %w", err)
	}
	return o, nil
}

// again runs the test in a process with a network namespace of its own.
func again(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root\nremedy: make test, which asks for it")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=9m")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the child dies with this thread
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// build makes the second namespace, which lives as long as the process.
func (o *Net) build() error {
	ns := make(chan int)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread belongs to the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			failed <- err
			return
		}
		ns <- fd
		for f := range o.calls {
			f()
		}
	}()
	select {
	case err := <-failed:
		return err
	case fd := <-ns:
		defer unix.Close(fd)
		if err := layWire(fd); err != nil {
			return err
		}
	}
	return o.inside(func() error {
		if err := beEverybody(); err != nil {
			return err
		}
		if err := o.sniff(); err != nil {
			return err
		}
		return o.serve()
	})
}

// inside runs f in the outside's namespace.
func (o *Net) inside(f func() error) error {
	done := make(chan error)
	o.calls <- func() { done <- f() }
	return <-done
}

// layWire connects this namespace with that of fd.
func layWire(fd int) error {
	for _, name := range []string{"all", "default"} { // else our kernel speaks it on the wire by itself
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0) // there may be none
	}
	if err := up("lo"); err != nil {
		return err
	}
	wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire0"}, PeerName: "wire1", PeerNamespace: netlink.NsFd(fd)}
	if err := netlink.LinkAdd(wire); err != nil {
		return fmt.Errorf("add veth: %w", err)
	}
	if err := address("wire0", here, bits); err != nil {
		return err
	}
	if err := up("wire0"); err != nil {
		return err
	}
	// The other end is up only later: until then the route has no carrier.
	return netlink.RouteAdd(&netlink.Route{LinkIndex: index("wire0"), Gw: net.ParseIP(there), Flags: int(netlink.FLAG_ONLINK)})
}

// beEverybody makes this namespace the owner of all addresses but one.
func beEverybody() error {
	for _, l := range []string{"lo", "wire1"} {
		if err := up(l); err != nil {
			return err
		}
	}
	if err := address("wire1", there, bits); err != nil {
		return err
	}
	const tableLocal = unix.RT_TABLE_LOCAL
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	_, peer, _ := net.ParseCIDR(here + "/32")
	for _, r := range []*netlink.Route{
		{LinkIndex: index("lo"), Dst: all, Table: tableLocal, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST},
		{LinkIndex: index("wire1"), Dst: peer, Table: tableLocal, Scope: netlink.SCOPE_LINK},
	} {
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("add route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

func index(name string) int {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0
	}
	return l.Attrs().Index
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func address(name, ip string, bits int) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip).To4(), Mask: net.CIDRMask(bits, 32)}})
	}
	if err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, ip, err)
	}
	return nil
}

// sniff notes every packet that comes over the wire.
func (o *Net) sniff() error {
	const ethAll = 0x0300 // ETH_P_ALL in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, ethAll)
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ethAll, Ifindex: index("wire1")}); err != nil {
		return fmt.Errorf("bind packet socket: %w", err)
	}
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				if err == unix.EINTR {
					continue
				}
				return
			}
			ll, ok := from.(*unix.SockaddrLinklayer)
			if ok && ll.Pkttype != unix.PACKET_OUTGOING && ll.Protocol != 0x0608 { // ARP
				o.saw(b[:n])
			}
		}
	}()
	return nil
}

// saw notes an IP packet as "PROTOCOL ADDRESS[:PORT]", once.
func (o *Net) saw(b []byte) {
	what := fmt.Sprintf("%x", b[:min(len(b), 16)])
	if len(b) >= 24 && b[0]>>4 == 4 {
		dst, _ := netip.AddrFromSlice(b[16:20])
		l4 := b[int(b[0]&15)*4:]
		switch {
		case b[9] == unix.IPPROTO_TCP && len(l4) >= 4:
			what = fmt.Sprintf("tcp %s:%d", dst, int(l4[2])<<8|int(l4[3]))
		case b[9] == unix.IPPROTO_UDP && len(l4) >= 4:
			what = fmt.Sprintf("udp %s:%d", dst, int(l4[2])<<8|int(l4[3]))
		default:
			what = fmt.Sprintf("ip%d %s", b[9], dst)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.packets, what) {
		o.packets = append(o.packets, what)
	}
}

// Packets are the kinds of packets that have arrived since the last call, as
// "tcp 203.0.114.7:443", "udp 9.9.9.53:53" or "ip1 8.8.8.8".
func (o *Net) Packets() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.packets
	o.packets = nil
	return out
}
