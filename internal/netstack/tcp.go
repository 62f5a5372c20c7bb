package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

const (
	dialTimeout = 30 * time.Second
	// handshakeTimeout bounds the wait for the guest's last handshake packet.
	// It comes at once, except on a host so busy that packets are lost.
	handshakeTimeout = 60 * time.Second
	keepAlive        = 60 * time.Second
)

// dials are the connection attempts of the guest that are not decided yet,
// each with its first packet, to which an ICMP error can be the answer.
type dials struct {
	forward func(stack.TransportEndpointID, *stack.PacketBuffer) bool
	reject  func(*stack.PacketBuffer)

	mu   sync.Mutex // guards what follows
	syns map[stack.TransportEndpointID]*stack.PacketBuffer
}

func newDials(s *stack.Stack, handle func(*tcp.ForwarderRequest)) *dials {
	d := &dials{syns: map[stack.TransportEndpointID]*stack.PacketBuffer{}}
	// The limit is kept here; the forwarder's own would drop packets unseen.
	d.forward = tcp.NewForwarder(s, 0, maxDials+1, handle).HandlePacket
	d.reject = func(syn *stack.PacketBuffer) {
		if p, ok := s.NetworkProtocolInstance(ipv4.ProtocolNumber).(stack.RejectIPv4WithHandler); ok {
			_ = p.SendRejectionError(syn, stack.RejectIPv4WithICMPHostUnreachable, true) // lost: the guest asks again
		}
	}
	return d
}

// handlePacket is called, one packet at a time, for TCP that belongs to no
// connection. False makes the stack answer with a reset. A SYN beyond the
// limit is dropped: the guest's kernel repeats it.
func (d *dials) handlePacket(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.TCP(pkt.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize || h.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false
	}
	d.mu.Lock()
	_, known := d.syns[id]
	if !known && len(d.syns) < maxDials {
		d.syns[id] = pkt.Clone()
	}
	taken := !known && d.syns[id] != nil
	d.mu.Unlock()
	if known || !taken {
		return true
	}
	if !d.forward(id, pkt) {
		d.decided(id, false)
		return false
	}
	return true
}

// decided forgets an attempt, or first tells the guest that the peer is out
// of reach.
func (d *dials) decided(id stack.TransportEndpointID, unreachable bool) {
	d.mu.Lock()
	syn := d.syns[id]
	delete(d.syns, id)
	d.mu.Unlock()
	if syn == nil {
		return
	}
	defer syn.DecRef()
	if unreachable {
		d.reject(syn)
	}
}

// handleTCP is one connection attempt of the guest and what becomes of it,
// in a goroutine of its own.
func (s *Stack) handleTCP(r *tcp.ForwarderRequest) {
	id := r.ID()
	if !s.enter() {
		s.dials.decided(id, false)
		r.Complete(true)
		return
	}
	defer s.work.Done()
	f := s.flows.add(s.ctx, egress.TCP, local(id), maxTCP)
	if f == nil {
		s.log.Log(s.ctx, s.overTCP.level(), "sandbox has too many connections", "dst", local(id), "limit", maxTCP)
		s.dials.decided(id, false)
		r.Complete(true)
		return
	}
	defer s.flows.remove(f)
	in, out := s.connect(r, f)
	s.dials.decided(id, false)
	if in != nil {
		s.carry(f, in, out)
	}
}

// carry moves the bytes of an open connection; out is nil where it is dialled
// only once the guest has spoken.
func (s *Stack) carry(f *flow, in *guestConn, out net.Conn) {
	if out == nil {
		o, held, err := s.listenFirst(f, in)
		switch {
		case errors.Is(err, errTaken):
			s.intercept(f, in, nil, held)
			return
		case err != nil:
			f.because(err.Error())
			s.log.Debug("connection ended", "dst", f.dst, "err", err)
			in.ep.Abort()
			in.Close()
			return
		}
		out = o
	}
	defer out.Close()
	if held, taken := s.splice(f, in, out); taken {
		s.intercept(f, in, out, held)
	}
}

// connect judges and dials. The guest's handshake is completed only after
// the outside's, so that it sees a refused or unreachable peer as such; but
// where rules may answer in the destination's place, nothing is dialled yet
// and the second result is nil. Both are, and r is answered, where the
// connection has failed.
func (s *Stack) connect(r *tcp.ForwarderRequest, f *flow) (*guestConn, net.Conn) {
	var late bool
	v := s.flows.judged(f, func() egress.Verdict {
		v, p := s.judge.Connect(egress.TCP, f.dst), s.judge.Policy()
		late = p.RulesOfAny(v.Names)
		f.raw = len(v.Names) == 0 && !s.judge.DeniesNames() && !p.RulesOfAny(v.Resolved)
		return v
	})
	if !v.Allowed {
		s.log.Debug("refused connection", "dst", f.dst, "rule", v.Rule, "reason", v.Reason)
		r.Complete(true)
		return nil, nil
	}
	f.meter = s.judge.Meter(egress.TCP, f.dst, v)
	if late {
		return s.welcome(r, f), nil
	}
	out, err := s.dialOut(f.ctx, "tcp", f.dst)
	if err != nil {
		f.because(err.Error())
		s.log.Debug("connection failed", "dst", f.dst, "err", err)
		unreachable := f.ctx.Err() == nil && outOfReach(err)
		s.dials.decided(r.ID(), unreachable)
		r.Complete(!unreachable)
		return nil, nil
	}
	in := s.welcome(r, f)
	if in == nil {
		out.Close()
		return nil, nil
	}
	return in, out
}

// welcome is accept; nil where the guest has given up.
func (s *Stack) welcome(r *tcp.ForwarderRequest, f *flow) *guestConn {
	in, err := s.accept(r, f)
	if err != nil {
		f.because("the guest gave up")
		s.log.Debug("guest gave up its connection", "dst", f.dst, "err", err)
	}
	return in
}

// accept completes the guest's handshake.
func (s *Stack) accept(r *tcp.ForwarderRequest, f *flow) (*guestConn, error) {
	var wq waiter.Queue
	// CreateEndpoint sleeps until the queue says that the endpoint is
	// writable; saying so earlier makes it look, and give up.
	giveUp := func() { wq.Notify(waiter.WritableEvents) }
	f.whenAborted(giveUp)
	timer := time.AfterFunc(handshakeTimeout, giveUp)
	ep, terr := r.CreateEndpoint(&wq)
	timer.Stop()
	if terr != nil {
		r.Complete(true)
		return nil, fmt.Errorf("complete handshake: %s", terr)
	}
	r.Complete(false)
	if n := bufferSize(s.flows.count(egress.TCP)); n != 0 {
		ep.SocketOptions().SetReceiveBufferSize(n, true)
		ep.SocketOptions().SetSendBufferSize(n, true)
	}
	ep.SocketOptions().SetKeepAlive(true)
	idle := tcpip.KeepaliveIdleOption(keepAlive)
	_ = ep.SetSockOpt(&idle) // without it the default, two hours, holds
	return newGuestConn(&wq, ep), nil
}

// dialOut opens a connection of the host to the judged address.
func (s *Stack) dialOut(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return s.cfg.Dial(ctx, network, dst)
}

// outOfReach tells errors that a network reports by ICMP, or not at all,
// from those that a peer reports by a reset.
func outOfReach(err error) bool {
	return errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.ETIMEDOUT) ||
		errors.Is(err, context.DeadlineExceeded)
}

// hostDial is the plain Config.Dial. The address is a literal, so nothing is
// looked up again; Control checks that the socket goes nowhere else.
func hostDial(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{
		KeepAlive: keepAlive,
		Control: func(_, address string, _ syscall.RawConn) error {
			if got, err := netip.ParseAddrPort(address); err != nil || got != dst {
				return fmt.Errorf("about to connect to %s in place of %s", address, dst)
			}
			return nil
		},
	}
	return d.DialContext(ctx, network, dst.String())
}

// local is the address that the guest wanted to reach.
func local(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
}

// errAborted ends the copying of a flow that was reset.
var errAborted = errors.New("connection was reset by the network policy")
