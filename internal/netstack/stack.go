// Package netstack is the host's end of a sandbox's network cable: a TCP/IP
// stack of its own for each sandbox, in this process. Every packet of the
// guest ends here; every connection that leaves is judged, dialled by the
// host and spliced, so nothing that the judge has not allowed can leave.
package netstack

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/intercept"
)

// ErrClosed is returned by calls on a Stack that is closed.
var ErrClosed = errors.New("network stack is closed")

const nicID = 1

// DialFunc opens a connection of the host to addr; network is "tcp" or
// "udp". It must connect to this very address: it is what was judged.
type DialFunc func(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error)

// Config describes a Stack.
type Config struct {
	// Cable is the host's end of the cable: a SEQPACKET socket that carries
	// one IPv4 packet a message. The stack works on a duplicate; the given
	// descriptor stays its owner's, who may close it at any time.
	Cable int
	// Policy that holds at first.
	Policy egress.Policy
	// Hostname of the guest, which resolves to the guest itself.
	Hostname string
	// Upstream answers the look-ups that the policy allows; nil means the
	// resolvers of this host.
	Upstream Upstream
	// Dial opens connections outward; nil means a plain connection of the
	// host. Tests put an outside of their own here.
	Dial DialFunc
	// Host lists the host's own addresses; nil means this host's.
	Host *egress.HostAddrs
	// Deny is what no policy opens.
	Deny egress.DenyList
	// CA of the sandbox, by which connections are opened; nil: one of its own.
	CA *intercept.CA
	// Roots verify the destinations of connections that rules open; nil means
	// those of the system.
	Roots *x509.CertPool
	// Token signs what goes to the proxies of rules, as intercept.Config says.
	Token func(audience string) (string, error)
	// Logger for what a user would want to know; nil means slog.Default.
	Logger *slog.Logger
}

// Stack is one sandbox's network. Safe for concurrent use. It runs from New
// to Close; when the guest's end of the cable closes it falls silent.
type Stack struct {
	cfg   Config
	log   *slog.Logger
	judge *egress.Judge
	link  *link
	stack *stack.Stack
	flows *flows
	dials *dials

	ingress, egress atomic.Uint64 // bytes into and out of the sandbox

	overTCP, overUDP, failedDNS, filteredDNS warned

	ctx    context.Context // ends at Close
	cancel context.CancelFunc

	ca func() (*intercept.CA, error)

	mu     sync.Mutex // guards what follows
	closed bool
	proxy  *intercept.Proxy // nil until a connection needs it
	work   sync.WaitGroup   // goroutines that handle the guest's traffic
	done   chan struct{}    // closed when Close has finished
}

// warned keeps what a guest can bring about at will from filling the log of
// the host: it is a warning once an interval, and told to debuggers otherwise.
type warned struct{ last atomic.Int64 }

const warnEvery = time.Minute

func (w *warned) level() slog.Level {
	now, last := time.Now().UnixNano(), w.last.Load()
	if last != 0 && now-last < int64(warnEvery) || !w.last.CompareAndSwap(last, now) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// New starts a stack on the cable.
func New(cfg Config) (*Stack, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Dial == nil {
		cfg.Dial = hostDial
	}
	if cfg.Upstream == nil {
		cfg.Upstream = HostUpstream()
	}
	judge := egress.NewJudge(egress.Options{Policy: cfg.Policy, Host: cfg.Host, Deny: []netip.Prefix{driver.Subnet}, Server: cfg.Deny})
	l, err := newLink(cfg.Cable, judge.RefusePacket)
	if err != nil {
		return nil, fmt.Errorf("attach to the network cable: %w", err)
	}
	s := &Stack{cfg: cfg, log: cfg.Logger, judge: judge, link: l, flows: newFlows(), ca: sync.OnceValues(intercept.NewCA), done: make(chan struct{})}
	if cfg.CA != nil {
		s.ca = func() (*intercept.CA, error) { return cfg.CA, nil }
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := s.setUp(); err != nil {
		s.Close()
		return nil, fmt.Errorf("set up the network stack: %w", err)
	}
	return s, nil
}

func (s *Stack) setUp() error {
	if err := tuneTCP(s.stack); err != nil {
		return err
	}
	// The handlers come first, so that no packet is seen without them.
	s.dials = newDials(s.stack, s.handleTCP)
	s.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, s.dials.handlePacket)
	s.stack.SetTransportProtocolHandler(udp.ProtocolNumber, s.handleUDP)
	if e := s.stack.CreateNICWithOptions(nicID, s.link, stack.NICOptions{Disabled: true}); e != nil {
		return fmt.Errorf("create NIC: %s", e)
	}
	addr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{
		Address: tcpip.AddrFrom4(driver.GatewayAddr.As4()), PrefixLen: driver.Subnet.Bits()}}
	if e := s.stack.AddProtocolAddress(nicID, addr, stack.AddressProperties{}); e != nil {
		return fmt.Errorf("add gateway address: %s", e)
	}
	s.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	// Accept packets to, and answer from, every address of the outside.
	if e := s.stack.SetPromiscuousMode(nicID, true); e != nil {
		return fmt.Errorf("set promiscuous mode: %s", e)
	}
	if e := s.stack.SetSpoofing(nicID, true); e != nil {
		return fmt.Errorf("set spoofing: %s", e)
	}
	if err := s.serveDNS(); err != nil {
		return err
	}
	if e := s.stack.EnableNIC(nicID); e != nil {
		return fmt.Errorf("enable NIC: %s", e)
	}
	return nil
}

// Buffers of one connection. They bound what is in flight, not what is
// allocated; many connections get smaller ones (flows.bufferSize).
const (
	defaultBuffer = 1 << 20
	maxBuffer     = 4 << 20
)

func tuneTCP(s *stack.Stack) error {
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &moderate,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: defaultBuffer, Max: maxBuffer},
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: defaultBuffer, Max: maxBuffer},
	} {
		if e := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); e != nil {
			return fmt.Errorf("set TCP option %T: %s", o, e)
		}
	}
	return nil
}

// SetPolicy replaces the policy. When it returns, new connections and
// look-ups obey it and the open connections that it forbids are reset.
func (s *Stack) SetPolicy(p egress.Policy) {
	s.flows.recheck(func() { s.judge.SetPolicy(p) }, func(f *flow) bool {
		if f.raw && p.RulesOfAny(f.verdict.Resolved) {
			return false // it would go round the rules
		}
		return s.judge.Recheck(f.proto, f.dst, f.verdict.Resolved).Allowed
	})
}

// Policy is the one in force.
func (s *Stack) Policy() egress.Policy { return s.judge.Policy() }

// Log of the decisions about the sandbox's traffic. It is closed when the
// stack is, and can be read after that too.
func (s *Stack) Log() *egress.Log { return s.judge.Log() }

// Usage is how many bytes of payload went into the sandbox (ingress) and out
// of it (egress), whoever opened the connection.
func (s *Stack) Usage() (ingress, egress uint64) { return s.ingress.Load(), s.egress.Load() }

// enter registers a piece of work that Close waits for; false after Close.
func (s *Stack) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

// goWork runs f in a goroutine that Close waits for.
func (s *Stack) goWork(f func()) bool {
	if !s.enter() {
		return false
	}
	go func() {
		defer s.work.Done()
		f()
	}()
	return true
}

// Close ends every connection and waits until nothing of the stack runs. The
// descriptor in Config.Cable stays open. Idempotent.
func (s *Stack) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	proxy := s.proxy
	s.mu.Unlock()
	defer close(s.done)
	s.cancel()
	s.link.stop() // also frees senders that wait for the guest to read
	s.flows.abortAll()
	if proxy != nil {
		proxy.Close()
	}
	s.stack.Close()
	s.work.Wait()
	s.stack.Wait()
	s.judge.Log().Close()
	return nil
}
